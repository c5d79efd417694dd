"""MEGA's Theorem 1: one head of attention with a gate on its output computes what many heads compute."""

import pytest
import torch

from fairseq_mega.ops.attention import attention
from tests.support.numerics import assert_close

LENGTH, WIDTH = 11, 24


def attend(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, heads: int) -> torch.Tensor:
    """Outputs (L, D) of causal softmax attention whose heads share out the features (MEGA, Eq. 19)."""
    q, k, v = (x.unflatten(-1, (heads, -1)).transpose(0, 1) for x in (query, key, value))
    return attention(q, k, v, causal=True).transpose(0, 1).flatten(1)


@pytest.mark.parametrize("heads", [1, 2, 4, 12, 24])
def test_a_gate_makes_one_head_as_expressive_as_many(heads: int) -> None:
    """The gate of the proof (Appendix B), the outputs of many heads over those of one, is finite and gives them back.

    It is a function of X, as Q, K and V are; without it one head differs.
    """
    draw = torch.Generator().manual_seed(heads)
    x = torch.randn(LENGTH, WIDTH, generator=draw, dtype=torch.float64)
    maps = torch.randn(3, WIDTH, WIDTH, generator=draw, dtype=torch.float64) / WIDTH**0.5
    query, key, value = (x @ weights for weights in maps)
    many, one = attend(query, key, value, heads), attend(query, key, value, 1)
    gate = many / one
    assert gate.isfinite().all()
    assert_close("gated output of one head", one * gate, many)
    assert heads == 1 or (one - many).abs().max() > 0.1


def test_where_one_head_gives_zero_no_gate_helps() -> None:
    """The case that the proof omits: it divides by the output of one head, here the mean of 1 and -1."""
    value = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=torch.float64)
    query, key = torch.tensor([[0.0, 0.0], [1.0, -1.0]]).double(), torch.tensor([[1.0, 0.0], [0.0, -1.0]]).double()
    one, many = (attend(query, key, value, heads) for heads in (1, 2))
    assert one[1, 0] == 0 and many[1, 0] > 0.1
