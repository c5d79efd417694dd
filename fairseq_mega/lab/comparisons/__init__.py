"""Comparisons of small models of equal size on the same data, for a CPU."""
