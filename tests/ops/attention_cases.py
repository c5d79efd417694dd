"""Inputs and comparisons of the attention's tests."""

import pytest
import torch

from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.attention import native as kernels
from tests.support.numerics import GRADIENT_FACTOR, OUTPUT_FACTOR, assert_close, gradients, leaves, once


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


def padding(batch, keys, side="right"):
    """One sequence padded on one side, another one padded altogether if there are three."""
    if side is None:
        return None
    mask = torch.zeros(*batch, keys, dtype=torch.bool)
    mask[-1, ..., max(1, keys - 3) :] = side == "right"
    mask[-1, ..., : min(3, keys - 1)] |= side == "left"
    if batch[0] > 2:
        mask[0] = True
    return mask


def output_and_gradients(inputs, dtype, path, device, mask, **options):
    """One path's output, and the gradients of a projection of it."""
    values = leaves({name: tensor.to(device) for name, tensor in inputs.items()}, dtype)
    mask = None if mask is None else mask.to(device)
    out = attention(**values, padding_mask=mask, path=path, **options)
    assert out.dtype == dtype
    return named(out, values)


def named(out, inputs):
    """The output and the gradients of a projection of it, by name."""
    return {"output": out.detach(), **{f"gradient of {name}": g for name, g in gradients(out, inputs).items()}}


def assert_all_close(got, want, baseline):
    """Compare what output_and_gradients found with the formula, in float64 and in the precision of ``got``."""
    for name in want:
        factor = OUTPUT_FACTOR if name == "output" else GRADIENT_FACTOR
        assert_close(name, got[name], want[name], baseline[name], factor)


def compare(inputs, path, device="cpu", dtype=torch.float32, mask=None, **options):
    """Run a path in ``dtype`` and compare with the formula in float64: output and all gradients."""
    want, baseline = (
        once(output_and_gradients, inputs, precision, "reference", device, mask, **options)
        for precision in (torch.float64, dtype)
    )
    assert_all_close(output_and_gradients(inputs, dtype, path, device, mask, **options), want, baseline)


def small_blocks(monkeypatch):
    """Make the kernels compute blocks of several groups or of 16 queries, in place of one that holds everything."""
    monkeypatch.setattr(kernels, "BLOCK_WEIGHTS", {"cpu": 1 << 11, "cuda": 1 << 11})
    monkeypatch.setattr(kernels, "MIN_QUERIES", 16)


def weights_of_sixteen_bits(monkeypatch):
    """Compute products of 16-bit factors as on a GPU: logits of float32, and weights of 16 bits."""
    monkeypatch.setattr(kernels, "working_dtype", lambda q: q.dtype)
    monkeypatch.setattr(kernels, "multiply", lambda a, b, out: out.copy_(torch.bmm(a.float(), b.float())))


@pytest.fixture(params=["one block", "many blocks"])
def block_size(request, monkeypatch):
    """Run a test with one block, and with several."""
    if request.param == "many blocks":
        small_blocks(monkeypatch)
