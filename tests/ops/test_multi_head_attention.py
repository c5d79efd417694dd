"""Attention of several heads against the written-out formula, by the kernel for blocks and by torch."""

from typing import Any, Callable, Dict, List

import pytest
import torch

from fairseq_mega.ops import attention as module
from fairseq_mega.ops.attention import attention, multi_head_attention
from fairseq_mega.ops.common import native
from tests.support.numerics import assert_close, leaves

B, H, Z = 3, 4, 16


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 9), (37, 37), (20, 75), (130, 130)])
@pytest.mark.parametrize("padded", [False, True])
def test_equals_reference(
    monkeypatch: pytest.MonkeyPatch, fast: bool, causal: bool, queries: int, keys: int, padded: bool
) -> None:
    if fast and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    monkeypatch.setattr(module, "FAST", fast)
    generator = torch.Generator().manual_seed(queries)
    inputs = {
        name: torch.randn(B, H, length, Z, generator=generator, dtype=torch.float64)
        for name, length in (("q", queries), ("k", keys), ("v", keys))
    }
    mask = torch.zeros(B, keys, dtype=torch.bool)
    mask[0, : keys // 3] = padded  # to the left, and the queries there see no key if causal
    weight = torch.randn(B, H, queries, Z, generator=generator, dtype=torch.float64)
    if padded and causal:
        weight[0, :, : max(0, queries - keys + keys // 3)] = 0.0

    def run(dtype: torch.dtype, reference: bool = False) -> Dict[str, torch.Tensor]:
        given = leaves(inputs, dtype)
        if reference:
            there = mask[:, None].expand(-1, H, -1)
            out = attention(*given.values(), causal=causal, padding_mask=there, path="reference")
        else:
            out = multi_head_attention(*given.values(), causal=causal, padding_mask=mask if padded else None)
        (out * weight.to(dtype)).sum().backward()
        return {"out": out.detach() * (weight != 0.0), **{name: tensor.grad for name, tensor in given.items()}}

    wanted = run(torch.float64, reference=True)
    for name, found in run(torch.float32).items():
        assert_close(name, found, wanted[name])


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("window", [2, 5, 64, 75, 100])
@pytest.mark.parametrize(("queries", "keys"), [(1, 75), (20, 75), (75, 75), (130, 130)])
def test_a_window_hides_older_keys(
    monkeypatch: pytest.MonkeyPatch, fast: bool, window: int, queries: int, keys: int
) -> None:
    if fast and native.PROBLEM is not None:
        pytest.skip(f"no compiled kernels: {native.PROBLEM}")
    monkeypatch.setattr(module, "FAST", fast)
    torch.manual_seed(keys)
    inputs = {name: torch.randn(2, 2, n, Z).double() for name, n in (("q", queries), ("k", keys), ("v", keys))}
    found, wanted = leaves(inputs, torch.float32), leaves(inputs, torch.float64)
    out = multi_head_attention(*found.values(), causal=True, window=window)
    position = torch.arange(keys)
    distance = position[-queries:, None] - position
    logits = wanted["q"] @ wanted["k"].mT / Z**0.5
    want = logits.masked_fill((distance < 0) | (distance >= window), -torch.inf).softmax(-1) @ wanted["v"]
    for results in (out, want):
        (results * torch.linspace(0.5, 1.5, Z)).sum().backward()
    assert_close("out", out, want)
    for name in inputs:
        assert_close(name, found[name].grad, wanted[name].grad)


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
def test_a_cpu_uses_the_kernel_and_the_environment_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    called: List[str] = []
    monkeypatch.setattr(module, "FAST", True)
    for name in ("blocks_attention", "dense_attention"):
        monkeypatch.setattr(module, name, note_call(getattr(module, name), called))
    x = torch.randn(2, 4, 128, 8)
    multi_head_attention(x, x, x)
    multi_head_attention(x.double(), x.double(), x.double())
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "attention=torch")
    multi_head_attention(x, x, x)
    assert called == ["blocks_attention", "dense_attention", "dense_attention"]


def note_call(function: Callable, called: List[str]) -> Callable:
    """Return the function, whose calls are noted by its name."""

    def call(*arguments: Any) -> Any:
        called.append(function.__name__)
        return function(*arguments)

    return call
