"""The attention's reference against its definition, dropping in blocks, memory, and accuracy of exp and erf."""

import math

import pytest
import torch

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention
from fairseq_mega.ops.attention import native as kernels
from fairseq_mega.ops.common import native
from tests.ops.attention_cases import padding, tensors
from tests.support.numerics import leaves


def literal(inputs, function, causal, mask):
    """Entry by entry, straight from the definition."""
    q, k, v, bias = inputs.values()
    queries, keys = q.size(-2), k.size(-2)
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=torch.float64)
    for b in range(q.size(0)):
        for i in range(queries):
            seen = [j for j in range(keys) if not causal or j <= keys - queries + i]
            real = [j for j in seen if mask is None or not mask[b, j]]
            seen = real or seen
            tau = math.sqrt(q.size(-1)) if function == "softmax" else len(seen)
            logits = torch.stack([q[b, i] @ k[b, j] / tau + bias[queries - 1 + j - i] for j in seen])
            if function == "softmax":
                weights = torch.softmax(logits, 0)
            elif function == "relu2":
                weights = logits.clamp(min=0) ** 2
            else:
                weights = 0.5 * (1 + torch.erf((logits - 0.707107) / (0.282095 * math.sqrt(2))))
            out[b, i] = sum(w * v[b, j] for w, j in zip(weights, seen))
    return out


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("side", [None, "right", "left"])
@pytest.mark.parametrize("shape", [(1, 1), (5, 5), (1, 7), (3, 7)])
def test_reference_is_the_definition(function, causal, side, shape):
    inputs = tensors(*shape)
    mask = padding((2,), shape[1], side)
    out = attention(**inputs, function=function, causal=causal, padding_mask=mask, path="reference")
    torch.testing.assert_close(out, literal(inputs, function, causal, mask))


@pytest.mark.parametrize("path", ["reference", "torch", "torch_blockwise"])
@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("queries", [1, 64])
def test_dropout_drops_weights(path, function, queries):
    torch.manual_seed(5)
    inputs = {name: tensor.float() for name, tensor in tensors(queries, 64).items()}
    inputs["v"] = torch.ones(2, 64, 1)
    whole = attention(**inputs, function=function, path="reference")
    dropped = torch.stack([attention(**inputs, function=function, path=path, dropout=0.5) for _ in range(200)])
    assert dropped.std(0).min() > 0
    assert ((dropped.mean(0) - whole).abs() / whole.abs().clamp(min=1e-3)).mean() < 0.1


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("drop", [{"dropout": 0.3}, {"drop_key": 0.6}])
def test_recomputed_blocks_drop_the_same_weights(drop, function, monkeypatch):
    """Gradients of the blockwise path under dropout are those of the forward pass that was seen."""
    monkeypatch.setattr(ops, "DENSE_LIMIT", {"cpu": (1, 1), "cuda": (1, 1)})  # blocks of 16 queries
    inputs = leaves(tensors(20, 20, (1,), 2, 2), torch.float64)

    def run(*values):
        torch.manual_seed(7)
        return attention(*values[:3], bias=values[3], function=function, path="torch_blockwise", **drop)

    assert torch.autograd.gradcheck(run, tuple(inputs.values()), nondet_tol=0.0)


def test_training_saves_no_weight_matrix():
    """The blockwise path of L = 4096 keeps nothing of the size of the weights for the backward pass."""
    length = 4096
    inputs = leaves(tensors(length, length, (2,), 4, 4), torch.float32)
    kept = []

    def note(tensor):
        kept.append(tensor.numel())
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda t: t):
        out = attention(**inputs, function="laplace")
    assert max(kept) < length * 64
    out.sum().backward()
    assert torch.isfinite(inputs["bias"].grad).all()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_memory_is_linear_in_the_length(kernel_device, function, training, request, monkeypatch):
    """All that a call on L = 4096 allocates at any moment is a small part of one L x L matrix."""
    length = 4096
    if request.node.callspec.params["kernel_device"] == "simulator":  # which is slow
        length = 512
        monkeypatch.setattr(kernels, "BLOCK_WEIGHTS", {"cpu": 1 << 11})
        monkeypatch.setattr(kernels, "MIN_QUERIES", 4)
    elif kernel_device.type == "cuda":  # a usual block of a GPU holds more weights than the matrix of this test
        monkeypatch.setattr(kernels, "BLOCK_WEIGHTS", {"cuda": 1 << 17})
        monkeypatch.setattr(kernels, "MIN_QUERIES", 32)
    inputs = leaves({n: t.to(kernel_device) for n, t in tensors(length, length, (1,), 4, 4).items()}, torch.float32)

    def work():
        with torch.set_grad_enabled(training):
            out = attention(**inputs, function=function, path="native", causal=True, dropout=0.1)
        if training:
            out.sum().backward()

    assert 0 < peak_of(work, kernel_device) < length * length * 4 / 8


def peak_of(work, device):
    """Bytes that are held at once, at most, by what the work allocates."""
    if device.type == "cuda":
        work()  # cuBLAS keeps a workspace from its first product on
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
        work()
    held = peak = 0
    for event in profile.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def weights_of(x, function, device):
    """Weights of one query whose logits are x, and their derivatives, from the kernels."""
    keys = x.numel()
    call = {
        **dict.fromkeys(("padding", "counts", "seed", "statistics")),
        "bias": x,
        "function": FUNCTIONS.index(function),
        "causal": False,
        "dropout": 0.0,
        "drop_key": 0.0,
        "queries": 1,
        "first_group": 0,
        "first_row": 0,
        "scale": 1.0 if function == "softmax" else 0.0,  # 1 / keys
    }
    if function == "softmax":
        call["statistics"] = torch.rand(1, 1, 2, device=device)
    # logits of zero before the bias: nothing is rounded on the way
    logits, gradient = torch.zeros(1, 1, keys, device=device), torch.ones(1, 1, keys, device=device)
    native.operators.attention_weights_(logits, None, **call)
    native.operators.attention_weights_backward_(torch.zeros_like(logits), gradient, None, None, None, **call)
    return logits[0, 0].cpu().double(), gradient[0, 0].cpu().double() * keys


# Largest error of a Laplace weight. CUDA's erfcf is within 4 units in the last place by its manual: half of that, where
# erfc is near 2, is 2.4e-7, and the result is rounded once more.
LAPLACE_ERROR = {"cpu": 1e-7, "cuda": 3e-7}


def test_accuracy_of_laplace(kernel_device):
    x = torch.cat([torch.linspace(-3, 4, 20011), torch.tensor([-1e4, -30.0, 30.0, 1e4, -math.inf, math.inf])])
    weights, slopes = weights_of(x.to(kernel_device), "laplace", kernel_device)
    t = (x.double() - 0.707107) / (0.282095 * math.sqrt(2))
    assert (weights - 0.5 * torch.erfc(-t)).abs().max() < LAPLACE_ERROR[kernel_device.type]
    peak = 1 / (0.282095 * math.sqrt(2 * math.pi))
    assert (slopes - peak * torch.exp(-t.square())).abs().max() < 4e-7 * peak  # t is rounded first


def test_accuracy_of_exp(kernel_device):
    x = torch.cat([torch.linspace(-75, 0, 20011), torch.tensor([-1e4, -math.inf])])
    weights, _ = weights_of(x.to(kernel_device), "softmax", kernel_device)
    powers, want = weights / weights[20010], torch.exp(x.double())  # divided by that of x = 0: not normalised
    assert ((powers - want).abs() <= 3e-7 * want).all()
