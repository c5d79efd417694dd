"""Dropout's kernels: what they drop, the gradients of it, and what is kept for the backward pass."""

import gc
from typing import Any, Dict

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.layer import PLAIN
from fairseq_mega.modules.mega_layer import MegaLayer, MegaLayerConfig
from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.recompute import recomputing
from fairseq_mega.ops.dropout import draw_seed, drawing_once, dropout
from fairseq_mega.ops.gate import gated_residual
from fairseq_mega.ops.linear import linear
from tests.support import kernels
from tests.support.dropping import kept, next_seed
from tests.support.numerics import GRADIENT_FACTOR, assert_close, gradients, leaves

P = 0.3
needs_kernels = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


def draw(*shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def dropped(x, mask, p=P):
    return torch.where(mask, x / (1 - p), torch.zeros_like(x))


@needs_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", [(1,), (7,), (2, 5, 9), (300, 33), (3, 0), (0, 4), (2, 1, 101)])
def test_elements_of_small_hashes_are_zero(shape, dtype):
    x, mask = draw(*shape, dtype=dtype).requires_grad_(), kept(next_seed(), torch.Size(shape), P)
    out = dropout(x, P, path="native")
    assert out.dtype == dtype
    grad = draw(*shape, seed=2, dtype=dtype)
    out.backward(grad)
    for name, got, given in (("output", out, x), ("gradient", x.grad, grad)):
        want = dropped(given.detach().double(), mask)
        assert_close(name, got, want, want.to(dtype))


@pytest.mark.parametrize("width", [3, 37, 101])
def test_every_level_drops_the_same(cpu_level, width):
    x = torch.ones(5, width)
    mask = kept(next_seed(), x.shape, P)
    assert torch.equal(dropout(x, P, path="native") != 0, mask)


@needs_kernels
def test_rows_may_lie_apart():
    wide = draw(4, 6, 20)
    for x in (wide[..., 3:10], wide.transpose(0, 1), wide[..., ::2], wide[:, ::2, :1]):
        mask = kept(next_seed(), x.shape, P)
        torch.testing.assert_close(dropout(x, P, path="native"), dropped(x, mask))


@pytest.mark.parametrize("path", ["native", "reference"])
def test_shares_and_repetition(path):
    if path == "native" and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    x = torch.ones(1000, 1000)
    first, second = (dropout(x, 0.1, path=path) for _ in range(2))
    for share in ((first == 0).double().mean(), (second == 0).double().mean()):
        assert abs(share - 0.1) < 5 * 0.3 / 1000  # five standard deviations
    both = ((first == 0) & (second == 0)).double().mean()
    assert abs(both - 0.01) < 5 * 0.1 / 1000
    torch.manual_seed(4)
    first = dropout(x, 0.1, path=path)
    torch.manual_seed(4)
    assert torch.equal(dropout(x, 0.1, path=path), first)
    assert torch.equal(dropout(x, 0.0, path=path), x) and not dropout(x, 1.0, path=path).any()


@needs_kernels
def test_gradients_of_gradients():
    seed = torch.tensor(7)
    assert torch.autograd.gradgradcheck(
        lambda y: native.operators.dropout(y.float(), seed, P).double().square(),
        draw(3, 5, dtype=torch.float64).requires_grad_(),
        eps=1e-2,
        atol=1e-2,
    )


def test_a_single_number():
    torch.manual_seed(1)
    assert {dropout(torch.tensor(3.0), 0.5).item() for _ in range(20)} == {0.0, 6.0}


@needs_kernels
def test_processes_that_are_seeded_alike_drop_other_elements(monkeypatch):
    """fairseq gives each process of a training the same seed."""
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    masks, x = [], torch.ones(50, 200)
    for rank in (0, 1, 2, 2):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)  # noqa: B023 (called in this round)
        torch.manual_seed(3)
        masks.append([dropout(x, P, path="native") == 0, dropout(x, P, path="native") == 0])
    for first, second in zip(*masks[2:]):
        assert torch.equal(first, second)
    share = {(one & other).float().mean().item() for rank in (1, 2) for one, other in zip(masks[0], masks[rank])}
    assert all(abs(both - P * P) < 0.02 for both in share)


@needs_kernels
def test_neither_mask_nor_result_is_kept():
    """After what is computed again, dropout is, too; else it keeps its seed alone."""
    weight = draw(8, 64).requires_grad_()

    def left(function):
        gc.collect()
        x, sizes = draw(500, 64).requires_grad_(), []

        def pack(kept):
            sizes.append(kept.numel())
            return kept

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept):
            function(x).sum().backward()
        return sorted(sizes)

    assert left(lambda x: dropout(x, P, path="native")) == []
    assert left(lambda x: linear(dropout(silu(x), P), weight, path="native")) == [512, 32000, 32000]
    assert left(lambda x: recomputing(linear, dropout(silu(x), P), weight)) == [512, 32000]


@needs_kernels
@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_is_computed_again_drops_the_same(checkpoint):
    x, weight = draw(300, 64).requires_grad_(), draw(8, 64, seed=3).requires_grad_()
    mask = kept(next_seed(), x.shape, P)

    def layer(x):
        return recomputing(linear, dropout(silu(x), P, path="native"), weight)

    out = torch.utils.checkpoint.checkpoint(layer, x, use_reentrant=False) if checkpoint else layer(x)
    exact = leaves({"x": x.detach(), "weight": weight.detach()}, torch.float64)
    want = dropped(F.silu(exact["x"]), mask) @ exact["weight"].t()
    torch.testing.assert_close(out.double(), want, rtol=1e-5, atol=1e-5)
    expected = gradients(want, exact)
    for name, gradient in gradients(out, {"x": x, "weight": weight}).items():
        torch.testing.assert_close(gradient.double(), expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("addend", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_gate_drops_of_its_candidate(kernel_device, addend, dtype, mixed):
    names = ("residual", "update", "candidate", "addend")[: 4 if addend else 3]
    rounded = {name: draw(6, 53, seed=i).to(dtype).to(kernel_device) for i, name in enumerate(names)}
    if mixed:
        rounded["residual"] = rounded["residual"].float()
    mask = kept(next_seed(kernel_device), torch.Size((6, 53)), P)
    inputs = {name: tensor.detach().requires_grad_() for name, tensor in rounded.items()}
    out = gated_residual(**inputs, dropout=P, path="native")
    exact = leaves({name: tensor.cpu() for name, tensor in rounded.items()}, torch.float64)
    candidate = F.silu(exact["candidate"] + exact["addend"]) if addend else exact["candidate"]
    gate = torch.sigmoid(exact["update"])
    want = gate * dropped(candidate, mask) + (1 - gate) * exact["residual"]
    assert_close("output", out.cpu(), want, want.to(out.dtype))
    expected = gradients(want, exact)
    for name, gradient in gradients(out, inputs).items():
        baseline = expected[name].to(gradient.dtype)
        assert_close(f"gradient of {name}", gradient.cpu(), expected[name], baseline, GRADIENT_FACTOR)


def _sum(seed, residual, x, addend, bias):
    return native.operators.gated_residual(residual, None, x, addend, bias, seed, P)


def _average(seed, x, skip, omega):
    return native.operators.silu(x, None, skip, omega, None, seed, P, True)


def _skip(seed, x, skip, omega):
    return native.operators.silu(x, None, skip, omega, None, None, 0.0, False)


# Operators of GPUs alone: what each computes, and the rows and columns that it reads.
ON_GPUS: Dict[Any, Any] = {
    _sum: (
        lambda mask, residual, x, addend, bias: residual + dropped(x + addend + bias, mask),
        ("residual", "x", "addend"),
        ("bias",),
    ),
    _average: (lambda mask, x, skip, omega: dropped(F.silu(x + omega * skip), mask), ("x", "skip"), ("omega",)),
    _skip: (lambda mask, x, skip, omega: x + omega * skip, ("x", "skip"), ("omega",)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("operator", ON_GPUS, ids=lambda operator: operator.__name__)
@pytest.mark.parametrize("place", kernels.KINDS[1:])
def test_gpus_drop_in_the_kernels_beside(place, operator, dtype, request, monkeypatch):
    device, (formula, rows, columns) = kernels.select(place, request, monkeypatch), ON_GPUS[operator]
    rounded = {name: draw(6, 53, seed=i).to(dtype).to(device) for i, name in enumerate(rows)}
    rounded.update({name: draw(53, seed=9).to(device) for name in columns})
    seed = next_seed(device).to(device)
    inputs = {name: tensor.detach().requires_grad_() for name, tensor in rounded.items()}
    out = operator(seed, **inputs)
    exact = leaves({name: tensor.cpu() for name, tensor in rounded.items()}, torch.float64)
    want = formula(kept(seed, torch.Size((6, 53)), P), **exact)
    assert out.dtype == dtype
    assert_close("output", out.cpu(), want, want.to(dtype))
    expected = gradients(want, exact)
    for name, gradient in gradients(out, inputs).items():
        assert gradient.dtype == rounded[name].dtype
        got = gradient.cpu().to(dtype)  # sums over upstream gradients of that precision
        assert_close(f"gradient of {name}", got, expected[name], expected[name].to(dtype), GRADIENT_FACTOR)


def test_a_layer_on_a_gpu_draws_its_seeds_at_once():
    gpu = torch.device("meta")  # like a GPU, not a CPU

    @drawing_once
    def layer(calls, x, context):
        return [draw_seed(gpu) for _ in range(calls)]

    seeds = layer(3, None, PLAIN)
    assert len({seed.untyped_storage()._cdata for seed in seeds}) == 1
    assert len({seed.storage_offset() for seed in seeds}) == 3
    others = [*layer(1, None, PLAIN), draw_seed(gpu), draw_seed(gpu)]
    assert len({seed.untyped_storage()._cdata for seed in [*seeds, *others]}) == 4
    assert draw_seed(gpu).shape == seeds[0].shape == () and seeds[0].dtype == torch.int64


@needs_kernels
@pytest.mark.parametrize("bidirectional", [False, True])
def test_a_layer_draws_no_mask(monkeypatch, bidirectional):
    """PyTorch draws one number after the other on a CPU, which took a sixth of a training."""
    monkeypatch.setattr(F, "dropout", None)
    names = ("dropout", "hidden_dropout", "activation_dropout", "attention_dropout")
    rates: Dict[str, Any] = dict.fromkeys(names, 0.1)
    config = MegaLayerConfig(16, 24, 8, 24, bidirectional=bidirectional, max_positions=300, **rates)
    out = MegaLayer(config).train()(draw(2, 300, 16))[0]
    assert out.isfinite().all()
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "reference")
    with pytest.raises(TypeError):
        Dropout(0.1).train()(draw(2, 3))
