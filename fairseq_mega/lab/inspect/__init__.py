"""Description of a checkpoint: its parameters, the reach of its moving averages, its attention."""
