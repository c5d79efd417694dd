"""Faults of fairseq under today's Python, torch and numpy, and optional packages."""
