"""Dropout and DropKey of the attention on every path; recomputation drops the same weights."""

import math

import pytest
import torch

from fairseq_mega.ops.attention import FUNCTIONS, Options, attention, attention_weights
from tests.ops.attention_cases import assert_all_close, block_size, named, output_and_gradients, tensors
from tests.support.dropping import HASHES, hash_of, mix
from tests.support.numerics import leaves, once

__all__ = ["block_size"]  # a fixture


def dropped_weights(inputs, device, **options):
    """The weights after dropping, read by attending to the rows of an identity matrix; the same at every call."""
    keys = inputs["k"].size(-2)
    v = torch.eye(keys, device=device).expand(*inputs["k"].shape[:-2], keys, keys)
    torch.manual_seed(11)
    return attention(inputs["q"], inputs["k"], v, bias=inputs["bias"], path="native", **options)


def masks_of(inputs, device, rates, **options):
    """Return the weights that dropout and DropKey keep, as the kernel drops from constant relu2 weights."""
    constant = {"q": inputs["q"] * 0, "k": inputs["k"], "bias": inputs["bias"] * 0 + 1}
    dropout, drop_key = rates
    kept_keys = dropped_weights(constant, device, function="relu2", drop_key=drop_key) != 0
    kept = dropped_weights(constant, device, function="relu2", dropout=dropout, drop_key=drop_key) != 0
    return kept_keys, kept


@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.3), (0.2, 0.3), (1.0, 0.0)])
def test_share_of_dropped_weights(kernel_device, rates):
    inputs = {name: tensor.float().to(kernel_device) for name, tensor in tensors(64, 64, (4,)).items()}
    _, kept = masks_of(inputs, kernel_device, rates)
    rate = (1 - rates[0]) * (1 - rates[1])
    for share, count in (
        (kept.double().mean(), kept.numel()),
        ((kept[:, :, 1:] & kept[:, :, :-1]).double().mean().sqrt(), kept.numel() / 2),  # neighbours are independent
        ((kept[:, 1:] & kept[:, :-1]).double().mean().sqrt(), kept.numel() / 2),
        ((kept[1:] & kept[:-1]).double().mean().sqrt(), kept.numel() / 2),
    ):
        assert abs(share - rate) <= 4.5 * math.sqrt(rate * (1 - rate) / count)


def formula(inputs, dtype, function, kept_keys, kept, dropout):
    """Output and gradients of causal attention, with masks of the keys and of the weights that are kept."""
    values = leaves(inputs, dtype)
    q, k, v, bias = values.values()
    weights = attention_weights(q, k, Options(function, bias, causal=True)) * kept_keys
    if function == "softmax":  # of the keys that are left
        weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    return named((weights * kept / (1 - dropout)) @ v, values)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("rates", [(0.3, 0.0), (0.0, 0.3), (0.2, 0.4), (0.0, 0.95)])
@pytest.mark.parametrize("shape", [(5, 5), (37, 37), (3, 300)])
def test_dropping_is_the_formula_with_its_mask(kernel_device, block_size, function, rates, shape):
    """Values and gradients are those of the written-out formula with the mask that the kernels use."""
    dropout, drop_key = rates
    inputs = {name: tensor.to(kernel_device) for name, tensor in tensors(*shape).items()}
    kept_keys, kept = masks_of({name: tensor.float() for name, tensor in inputs.items()}, kernel_device, rates)
    torch.manual_seed(11)
    options = {"function": function, "causal": True, "dropout": dropout, "drop_key": drop_key}
    got = output_and_gradients(inputs, torch.float32, "native", kernel_device, None, **options)
    want, baseline = (
        once(formula, inputs, dtype, function, kept_keys, kept, dropout) for dtype in (torch.float64, torch.float32)
    )
    assert_all_close(got, want, baseline)


def test_every_device_drops_the_same_weights(kernel_device, block_size):
    """The mask is a function of seed, group, query and key alone."""
    constant = {
        "q": torch.zeros(3, 20, 2, device=kernel_device),
        "k": torch.zeros(3, 35, 2, device=kernel_device),
        "bias": torch.ones(54, device=kernel_device),
    }
    weights = dropped_weights(constant, kernel_device, function="relu2", dropout=0.25)
    torch.manual_seed(11)
    seed = torch.randint(1 << 62, (), dtype=torch.int64, device=kernel_device)
    rows = [[(mix(int(seed) + group), query) for query in range(20)] for group in range(3)]
    want = [[[hash_of(*row, key) >= 0.25 * HASHES for key in range(35)] for row in group] for group in rows]
    assert (weights.cpu() != 0).tolist() == want


def test_calls_drop_different_weights(kernel_device):
    inputs = {name: tensor.float().to(kernel_device) for name, tensor in tensors(20, 20).items()}
    first, second = (attention(**inputs, dropout=0.5, path="native") for _ in range(2))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("path", ["reference", "torch", "torch_blockwise"])
def test_torch_paths_drop_keys(path, function):
    """Without the kernels: the share of lost keys, no rescaling but softmax's own, zeros where nothing is left."""
    inputs = {name: tensor.float() for name, tensor in tensors(48, 4, (8,)).items()}
    inputs["bias"] += 3
    inputs["v"] = torch.eye(4).expand(8, 4, 4)
    torch.manual_seed(2)
    out = attention(**inputs, function=function, drop_key=0.5, path=path)
    kept = out != 0
    assert abs(kept.double().mean() - 0.5) <= 4.5 * 0.5 / math.sqrt(kept.numel())
    nothing = ~kept.any(-1)
    assert 0 < nothing.sum() < nothing.numel()
    if function == "softmax":
        torch.testing.assert_close(out.sum(-1), (~nothing).float())
    else:
        plain = attention_weights(inputs["q"], inputs["k"], Options(function, inputs["bias"]))
        torch.testing.assert_close(out[kept], plain[kept])
