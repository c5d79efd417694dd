"""Datasets: everything between prepared files on disk and the batches of fairseq."""

from fairseq_mega.compat.versions.imports import import_fairseq

import_fairseq()
