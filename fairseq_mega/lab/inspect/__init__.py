"""A look inside a checkpoint: its parameters, what its moving averages listen to, its attention."""
