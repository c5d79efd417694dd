"""Change token ids between sentencepiece, which a published MEGALODON uses, and fairseq's dictionaries.

sentencepiece: 0 unknown, 1 begin, 2 end, no padding. fairseq: 0 begin, 1 padding, 2 end, 3 unknown. Every other token
n of sentencepiece has the id n + 1 in fairseq. The dict.txt of a converted model lists the tokeniser's tokens from id 3
on.
"""

import torch
from torch import Tensor

BEGIN, END, UNKNOWN = 1, 2, 0  # of sentencepiece
SPECIAL = 3  # tokens at the beginning of its vocabulary


def our_rows(table: Tensor) -> Tensor:
    """Return a table (V, d) as (V + 1, d) in fairseq's order, with zeros for padding; raises ValueError."""
    if table.size(0) < SPECIAL:
        raise ValueError(f"the table has {table.size(0)} rows, at least the {SPECIAL} special tokens are required")
    return torch.cat([table[[BEGIN]], torch.zeros_like(table[:1]), table[[END, UNKNOWN]], table[SPECIAL:]])


def published_rows(table: Tensor) -> Tensor:
    """Return a table in sentencepiece's order, without padding: the inverse of :func:`our_rows`."""
    return torch.cat([table[[3, 0, 2]], table[SPECIAL + 1 :]])
