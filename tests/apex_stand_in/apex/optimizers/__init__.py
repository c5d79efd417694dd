"""A stand-in for apex's optimisers, which are not used."""
