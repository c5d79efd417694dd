"""Inputs that the tests of the compiled attention share."""

import pytest
import torch

from fairseq_mega.ops.attention import fused


def tensors(queries, keys, batch=(2,), z=8, v=6, seed=3):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return {
        "q": draw(*batch, queries, z),
        "k": draw(*batch, keys, z),
        "v": draw(*batch, keys, v),
        "bias": draw(queries + keys - 1),
    }


def padding(batch, keys, side):
    """One sequence padded on one side, another one padded altogether if there are three."""
    if side is None:
        return None
    mask = torch.zeros(*batch, keys, dtype=torch.bool)
    mask[-1, ..., max(1, keys - 3) :] = side == "right"
    mask[-1, ..., : min(3, keys - 1)] |= side == "left"
    if batch[0] > 2:
        mask[0] = True
    return mask


@pytest.fixture(params=["one block", "many blocks"])
def block_size(request, monkeypatch):
    """Runs a test with blocks that hold everything, and with some of several groups or of 16 queries."""
    if request.param == "many blocks":
        monkeypatch.setattr(fused, "BLOCK_WEIGHTS", {"cpu": 1 << 11, "cuda": 1 << 11})
        monkeypatch.setattr(fused, "MIN_QUERIES", 16)
