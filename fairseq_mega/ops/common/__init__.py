"""Modules that operators share: the choice of paths, the compiled extension, devices, and recomputation."""
