"""The attention's paths against the written-out formula: values and every gradient."""

import math

import pytest
import torch

from fairseq_mega.ops import attention as ops
from fairseq_mega.ops.attention import FUNCTIONS, attention
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
