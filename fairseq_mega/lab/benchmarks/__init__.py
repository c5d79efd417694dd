"""Benchmarks of speed and memory, and one command for all of them."""
