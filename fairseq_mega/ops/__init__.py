"""Pure functions on tensors, each with a readable reference beside its fast paths.

Each operator has the name of its folder of kernels in ``csrc``; ``common`` contains shared parts in both.
"""
