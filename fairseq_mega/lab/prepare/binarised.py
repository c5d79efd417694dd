"""Binarised text, read back and counted."""

from pathlib import Path
from typing import Any, Dict, List, Tuple

import numpy as np

SCAN_TOKENS = 1 << 22


def binarised_counts(data: Path, split: str, dictionary: Any) -> Tuple[Dict[str, int], List[str]]:
    """Return lines, tokens and unknown words of a binarised split, and the problems found."""
    from fairseq.data.indexed_dataset import MMapIndexedDataset, data_file_path, index_file_path

    prefix = str(data / split)
    index = MMapIndexedDataset.Index(index_file_path(prefix))
    tokens = np.memmap(data_file_path(prefix), dtype=index.dtype, mode="r")
    frequency = np.zeros(len(dictionary), dtype=np.int64)
    for begin in range(0, len(tokens), SCAN_TOKENS):
        found = np.bincount(tokens[begin : begin + SCAN_TOKENS].astype(np.int64), minlength=len(dictionary))
        if len(found) > len(dictionary):
            return {}, [f"{split}: expected token numbers below {len(dictionary)} (dict.txt), found {len(found) - 1}"]
        frequency += found
    lines, problems = len(index.sizes), []
    for name, want, have in (
        ("tokens in the index", len(tokens), int(index.sizes.sum())),
        ("</s>", lines, int(frequency[dictionary.eos()])),
        ("<s> and <pad>", 0, int(frequency[dictionary.bos()] + frequency[dictionary.pad()])),
    ):
        if want != have:
            problems.append(f"{split}: expected {want} {name}, found {have}")
    return {"lines": lines, "tokens": len(tokens), "unknown": int(frequency[dictionary.unk()])}, problems
