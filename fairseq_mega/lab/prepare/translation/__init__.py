"""Parallel text: cleaned, split and cut into subwords."""
