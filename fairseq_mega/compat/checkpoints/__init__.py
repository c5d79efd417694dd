"""Read checkpoints as data alone, and write them whole, with the names of their numbers."""
