"""Time and peak memory of every path of the operators."""
