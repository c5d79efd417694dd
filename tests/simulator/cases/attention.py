"""Cases of the attention's weights."""

import math
from typing import Iterator, List, NamedTuple, Optional

import torch
from torch import Tensor

from tests.simulator.cases.case import FLOAT, HALF, Case, Results, exact, normal, ops, with_gradients


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


SEED = 77


def blocks() -> Iterator[Attention]:
    border = int(hashes(SEED, Attention(0, 1, 7, 1, groups=1), 7)[0, 0, 3]) / (1 << 24)  # one key's own number
    for function in range(3):
        yield Attention(function, 1, 1, 1)
        yield Attention(function, 5, 7, 5, masked=True, groups=3)
        yield Attention(function, 37, 37, 20, row=17, group=1, causal=True, masked=True)
        yield Attention(function, 9, 40, 9, causal=True, dropout=0.25)
        yield Attention(function, 40, 40, 33, causal=True, drop_key=0.5, masked=True)
        # A number that equals the border stays.
        yield Attention(function, 1, 7, 1, groups=1, dropout=border)
        yield Attention(function, 1, 7, 1, groups=1, drop_key=border)
        yield Attention(function, 130, 130, 130, causal=True)
        yield Attention(function, 3, 300, 3, masked=True, dropout=0.25)
        yield Attention(function, 37, 37, 20, row=17, causal=True, masked=True, scale=0.3)
        for keys in (128, 256, 1024, 4096):  # rows that use all registers of their threads
            yield Attention(function, 1, keys, 1, groups=1)
        yield Attention(function, 2, 1030, 2, causal=True)
        yield Attention(function, 2, 4100, 1, row=1, groups=1, masked=True, drop_key=0.25)
        for keys in (8192, 8193, 9000):  # the longest rows in registers, and longer ones
            yield Attention(function, 1, keys, 1, groups=1, masked=keys == 9000)
        for keys in (5, 300, 8193):  # DropKey leaves nothing
            yield Attention(function, 1, keys, 1, groups=1, drop_key=1 - 2**-24)
        yield Attention(function, 5, 5, 5, groups=70, causal=True)  # shares of the groups are summed apart
        yield Attention(function, 33, 45, 33, masked=True, dtype=HALF)


def cases() -> Iterator[Case]:
    for block in blocks():
        yield attention_case(block)


def attention_case(block: Attention) -> Case:
    total = block.group + block.groups
    columns = block.keys - block.queries + block.row + block.rows if block.causal else block.keys
    padding = counts = None
    if block.masked:
        padding = torch.rand(total, block.keys, generator=torch.Generator().manual_seed(1)) < 0.3
        padding[-1] = True  # nothing is left: it is seen in spite of that
        present = (~padding).cumsum(1) if block.causal else (~padding).sum(1, keepdim=True).expand(-1, block.keys)
        counts = present[:, block.keys - block.queries :].to(torch.int32).contiguous()
    given = {
        "logits": 3 * normal(2, block.groups, block.rows, columns),
        "bias": normal(3, block.queries + block.keys - 1),
    }
    if columns > 1000:  # the last key of a row weighs as much as the others together: a sum has to have it
        last = columns - 1 - torch.arange(block.rows).flip(0) * int(block.causal)
        given["logits"][:, torch.arange(block.rows), last] += 2 * math.log(columns)
    grad = normal(4, block.groups, block.rows, columns)
    seed = torch.tensor(SEED) if block.dropout or block.drop_key else None
    scale = (0.5 if block.function == 0 else 0.0) if block.scale is None else block.scale
    rest = (block.function, block.causal, scale, block.dropout, block.drop_key, block.queries, block.group, block.row)
    leaves = exact(given)
    wanted = with_gradients(
        {"weights": attention_by_definition(block, leaves, columns, padding, seed)}, {"weights": grad}, leaves
    )
    wanted["weights of the backward pass"] = wanted["weights"]
    if block.dtype == FLOAT:
        wanted.update(row_sums(wanted))
    if block.function == 0:
        wanted["statistics are there"] = torch.ones(1)

    def run() -> Results:
        outside: List[Optional[Tensor]] = [None, None]
        if block.dtype != FLOAT:
            outside = [torch.empty_like(grad, dtype=block.dtype) for _ in range(2)]
        statistics = torch.full((total, block.queries, 2), math.nan) if block.function == 0 else None
        shared = (given["bias"], padding, counts, seed, statistics, *rest)
        logits, found = given["logits"].clone(), {}
        ops().attention_weights_(logits, outside[0], *shared)
        found["weights"] = (logits if outside[0] is None else outside[0]).clone()
        if statistics is not None:  # those of the block, and no others
            rows = torch.zeros(total, block.queries, dtype=torch.bool)
            rows[block.group :, block.row : block.row + block.rows] = True
            found["statistics are there"] = torch.tensor([float(torch.equal(~statistics.isnan().any(-1), rows))])
        logits, grad_logits = given["logits"].clone(), grad.clone()
        grad_bias = torch.zeros(given["bias"].numel(), dtype=torch.float64)
        ops().attention_weights_backward_(logits, grad_logits, *outside, grad_bias, *shared)
        found["weights of the backward pass"] = logits if outside[0] is None else outside[0]
        found["gradient of logits"] = grad_logits if outside[1] is None else outside[1]
        found["gradient of bias"] = grad_bias
        return {**found, **row_sums(found)} if block.dtype == FLOAT else found

    return Case(str(block), run, wanted)


def row_sums(results: Results) -> Results:
    """Sums over the keys of a row: a sum that lacks one of 8,200 keys changes each of the others by too little."""
    names = ("weights", "weights of the backward pass", "gradient of logits")
    return {f"sums of {name}": results[name].double().sum(-1) for name in names}
