"""A stand-in for apex's compiled kernels of optimisers, which are not used."""
