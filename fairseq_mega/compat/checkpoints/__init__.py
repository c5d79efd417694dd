"""Checkpoints read and written: as data, whole, with the names of what their numbers mean."""
