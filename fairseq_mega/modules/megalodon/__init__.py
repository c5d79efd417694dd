"""The layer of MEGALODON (Ma et al., NeurIPS 2024) and its parts."""
