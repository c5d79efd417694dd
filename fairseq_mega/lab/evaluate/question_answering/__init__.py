"""Long-document question answering on data of SCROLLS (Shaham et al., 2022), as in MEGALODON's Table 3."""
