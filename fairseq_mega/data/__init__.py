"""Readers, cleaning and datasets: everything between files on disk and the batches of fairseq."""
