"""The attention's weights by their definition, and the numbers that decide what is dropped."""

import math
from typing import NamedTuple, Optional

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, Results


class Attention(NamedTuple):
    """A block: rows ``row`` to ``row + rows`` of ``groups`` groups from ``group`` on, of ``queries`` x ``keys``."""

    function: int  # softmax, relu2, laplace
    queries: int
    keys: int
    rows: int
    groups: int = 2
    row: int = 0
    group: int = 0
    causal: bool = False
    masked: bool = False
    dropout: float = 0.0
    drop_key: float = 0.0
    dtype: torch.dtype = FLOAT
    scale: Optional[float] = None  # that of the function


def attention_by_definition(
    block: Attention, leaves: Results, columns: int, padding: Optional[Tensor], seed: Optional[Tensor]
) -> Tensor:
    query = block.row + torch.arange(block.rows).unsqueeze(1)
    key = torch.arange(columns)
    past = key <= block.keys - block.queries + query if block.causal else torch.ones(block.rows, columns).bool()
    seen = past.expand(block.groups, -1, -1)
    if padding is not None:
        real = seen & ~padding[block.group :, None, :columns]
        seen = torch.where(real.any(-1, keepdim=True), real, seen)
    scale = (0.5 if block.function == 0 else 1 / seen.sum(-1, keepdim=True)) if block.scale is None else block.scale
    x = leaves["logits"] * scale + leaves["bias"][block.queries - 1 - query + key]
    factor = torch.ones_like(x)
    if seed is not None:
        numbers = hashes(int(seed), block, columns)
        border = round(block.drop_key * (1 << 24))
        seen = seen & (numbers >= border)
        border += round(block.dropout * ((1 << 24) - border))
        factor = (numbers >= border) / (1 - block.dropout)
    if block.function == 0:
        alive = seen.any(-1, keepdim=True)
        weights = torch.softmax(x.masked_fill(~seen & alive, -math.inf), -1) * alive
    elif block.function == 1:
        weights = torch.relu(x).square()
    else:
        weights = 0.5 * (1 + torch.erf((x - 0.707107) / (0.282095 * math.sqrt(2))))
    return weights.masked_fill(~seen, 0.0) * factor


def hashes(seed: int, block: Attention, columns: int) -> Tensor:
    """The kernels' numbers below 2^24, in Python's integers."""
    wide, narrow = (1 << 64) - 1, (1 << 32) - 1

    def mix(x: int) -> int:
        x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 & wide
        x = (x ^ (x >> 27)) * 0x94D049BB133111EB & wide
        return x ^ (x >> 31)

    def number(group: int, query: int, key: int) -> int:
        row = mix(mix(seed + group) + 0x9E3779B97F4A7C15 * (query + 1) & wide)
        x = (key * 0x9E3779B1 + (row & narrow)) & narrow
        x = ((x ^ (x >> 16)) * 0x7FEB352D + (row >> 32)) & narrow
        x = (x ^ (x >> 15)) * 0x846CA68B & narrow
        return (x ^ (x >> 16)) >> 8

    return torch.tensor(
        [
            [[number(block.group + g, block.row + r, key) for key in range(columns)] for r in range(block.rows)]
            for g in range(block.groups)
        ]
    )
