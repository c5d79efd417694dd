"""Processes of a training: their start, their batches, their signals and their end."""
