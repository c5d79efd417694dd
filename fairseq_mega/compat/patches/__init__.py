"""Faults of fairseq, torch and numpy, mended where they are held."""
