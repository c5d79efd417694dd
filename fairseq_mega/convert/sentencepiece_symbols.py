"""The numbers of symbols: sentencepiece's, which a published MEGALODON has, and those of fairseq's dictionaries.

sentencepiece begins with 0 unknown, 1 begin, 2 end, and has no padding; a dictionary of fairseq with 0 begin,
1 padding, 2 end, 3 unknown. Every other symbol of number n has the number n + 1 there. A dict.txt that lists the
tokeniser's symbols from number 3 on is the dictionary of a converted model.
"""

import torch
from torch import Tensor

BEGIN, END, UNKNOWN = 1, 2, 0  # of sentencepiece
SPECIAL = 3  # symbols that sentencepiece numbers first


def our_rows(table: Tensor) -> Tensor:
    """A table (V, d) as one (V + 1, d) in fairseq's order, with a row of zeros for padding; raises ValueError."""
    if table.size(0) < SPECIAL:
        raise ValueError(f"a table of {table.size(0)} rows: sentencepiece numbers {SPECIAL} symbols before all others")
    return torch.cat([table[[BEGIN]], torch.zeros_like(table[:1]), table[[END, UNKNOWN]], table[SPECIAL:]])


def published_rows(table: Tensor) -> Tensor:
    """The inverse of :func:`our_rows`, which leaves padding out."""
    return torch.cat([table[[3, 0, 2]], table[SPECIAL + 1 :]])
