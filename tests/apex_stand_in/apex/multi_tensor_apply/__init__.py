"""A stand-in for apex's calls of kernels, which are not used."""
