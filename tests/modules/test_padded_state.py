"""State of causal layers after rows that end in padding, for every layer that keeps a memory."""

from typing import Any, Dict, List, Optional

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from tests.support.layers import run

LENGTHS = (9, 4, 6, 0, 1)  # real steps of the rows
WIDTH = 8
KINDS = ["mega", "mega rotary", "megalodon"]


def layer(kind: str, chunk_size: int) -> Any:
    torch.manual_seed(0)
    built: Any
    shape: Dict[str, Any]
    if kind == "megalodon":
        shape = {"hidden_dim": 12, "z_dim": 8, "ffn_dim": 10, "heads": 2, "ema_dim": 3, "norm_groups": 2}
        built = MegalodonLayer(MegalodonLayerConfig(embed_dim=WIDTH, chunk_size=chunk_size, **shape))
    else:
        bias = "rotary" if kind == "mega rotary" else "simple"
        shape = {"hidden_dim": 12, "z_dim": 4, "ffn_dim": 10, "ema_dim": 3, "max_positions": 32}
        built = MegaLayer(MegaLayerConfig(embed_dim=WIDTH, chunk_size=chunk_size, relative_bias=bias, **shape))
    built = built.double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(rows: int, length: int, seed: int = 1) -> Tensor:
    return torch.randn(rows, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def padding(lengths: Any, total: int, left: int = 0) -> Tensor:
    """Mask of rows of real steps after ``left`` padded ones."""
    places = torch.arange(total)
    return torch.stack([(places < left) | (places >= left + length) for length in lengths])


def numbers(memory: Any, row: int) -> List[Tensor]:
    """Memory of one row."""
    found = [memory.ema[row]]
    if memory.norm is not None:
        found += [part[row] for part in memory.norm]
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_size", [-1, 4])
@pytest.mark.parametrize(("begins", "left"), [(None, 0), (None, 4), (8, 0)])
def test_memory_is_that_of_the_last_real_step(kind: str, chunk_size: int, begins: Optional[int], left: int) -> None:
    """Each row has the memory of being read alone, at the beginning of a stream and later in one."""
    built, rows = layer(kind, chunk_size), len(LENGTHS)
    before = None if begins is None else run(built, hidden(rows, begins, seed=2), return_state=True)
    memory = None if before is None else before.memory
    total = left + max(LENGTHS) + 2
    x, mask = hidden(rows, total), padding(LENGTHS, total, left)
    got = built(x.masked_fill(mask.unsqueeze(-1), 5.0), LayerContext(padding_mask=mask, return_state=True), memory)
    for row, length in enumerate(LENGTHS):
        alone = None if before is None else run(built, hidden(rows, 8, seed=2)[row : row + 1], return_state=True).memory
        want = built(x[row : row + 1, left : left + length], LayerContext(return_state=True), alone)
        for found, expected in zip(numbers(got.memory, row), numbers(want.memory, 0)):
            torch.testing.assert_close(found, expected, msg=f"row of {length} steps")


@pytest.mark.parametrize("kind", KINDS)
def test_reading_on_begins_a_chunk(kind: str) -> None:
    """Rows that end after whole chunks read on as if alone; gradients cross the padding."""
    built, lengths = layer(kind, 4), (8, 4)
    x, mask, following = hidden(2, 8).requires_grad_(), padding(lengths, 8), hidden(2, 5, seed=3)
    first = run(built, x, padding_mask=mask, return_state=True)
    second = built(following, LayerContext(), first.memory).hidden
    (gradient,) = torch.autograd.grad(second.square().sum(), x)
    for row, length in enumerate(lengths):
        alone = x.detach()[row : row + 1, :length].requires_grad_()
        joined = torch.cat([alone, following[row : row + 1]], dim=1)
        want = built(joined).hidden[:, length:]
        torch.testing.assert_close(second[row : row + 1], want)
        (expected,) = torch.autograd.grad(want.square().sum(), alone)
        torch.testing.assert_close(gradient[row, :length], expected[0])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk_size", [-1, 4])
def test_a_cache_that_ends_in_padding_is_not_read_on(kind: str, chunk_size: int) -> None:
    built, mask = layer(kind, chunk_size), padding((3, 2), 3)
    first = run(built, hidden(2, 3), padding_mask=mask, return_state=True)
    for following in (hidden(2, 1, seed=3), hidden(2, 5, seed=3)):
        with pytest.raises(ValueError, match="a row ends in padding within a chunk"):
            run(built, following, first, return_state=True)
    ended = padding((4, 0), 4)
    assert run(built, hidden(2, 4), first, padding_mask=ended, return_state=True).hidden.isfinite().all()
