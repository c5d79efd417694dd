"""Datasets: everything between prepared files on disk and the batches of fairseq."""
