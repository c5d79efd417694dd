"""Description of a checkpoint: its parameters, its memory, its attention."""
