"""MEGALODON's layer: streams, padding, causality, dropout, precision, initialisation, and bad shapes."""

import math
from typing import Any, Dict, List

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.initialization import INIT_MODES
from fairseq_mega.modules.megalodon.layer import MegalodonLayer

BATCH, WIDTH = 3, 8
SHAPE: Dict[str, Any] = {
    "embed_dim": WIDTH,
    "hidden_dim": 12,
    "z_dim": 8,
    "ffn_dim": 10,
    "heads": 2,
    "ema_dim": 3,
    "norm_groups": 2,
}


def layer(seed: int = 0, **changes: Any) -> MegalodonLayer:
    torch.manual_seed(seed)
    built = MegalodonLayer(MegalodonLayerConfig(**{**SHAPE, "swiglu": True, **changes})).double().eval()
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return built


def hidden(length: int, seed: int = 1) -> Tensor:
    return torch.randn(BATCH, length, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_dropouts() -> None:
    """Each of them acts in training alone; keys are dropped by default, weights where asked for."""
    x = hidden(12)
    for options in (
        {"dropout": 0.5},
        {"hidden_dropout": 0.5},
        {"attention_dropout": 0.5},
        {"attention_dropout": 0.5, "attention_drops": "weights"},
    ):
        built = layer(**options)
        torch.testing.assert_close(built(x).hidden, layer()(x).hidden)
        built.train()
        torch.manual_seed(1)
        first = built(x).hidden
        assert not torch.equal(first, built(x).hidden), options
        torch.manual_seed(1)
        assert torch.equal(first, built(x).hidden), options


@pytest.mark.parametrize("drops", ["keys", "weights"])
def test_what_the_attention_drops(drops: str) -> None:
    """Values of one: DropKey gives one, or zero where all keys went; dropped weights give the rest twice."""
    attention = layer(attention_dropout=0.5, attention_drops=drops).train().attention
    zeros = torch.zeros(400, 3, 8, dtype=torch.float64)
    out = attention._attend(zeros, zeros, torch.ones(400, 3, 12, dtype=torch.float64), None)
    first, last = (set(out[:, step].flatten().tolist()) for step in (0, 2))
    if drops == "keys":
        assert first == last == {0.0, 1.0} and out[:, 2].mean() > 0.8
    else:
        assert first == {0.0, 2.0} and len(last) == 4 and abs(out.mean() - 1) < 0.05


def test_small_scales_count_in_bfloat16() -> None:
    """1.0015 is 1 in bfloat16: the scale is made in float32."""
    built, x = layer().bfloat16(), 8 * hidden(30).bfloat16()
    parts: List[Any] = [built.feed_forward.norm, built.attention.ema_norm, built.attention.norm]
    for part in parts:
        found = []
        for value in (0.0, 0.0015):
            torch.nn.init.constant_(part.weight, value)
            out = part(x)
            found.append(out[0] if isinstance(out, tuple) else out)
        assert not torch.equal(*found)


STD = {"he": math.sqrt(1 / 3 / 96), "bert": 0.02, "xavier": math.sqrt(2 / (96 + 200)), "gaussian": 0.987 * 96**-0.5}


@pytest.mark.parametrize("mode", INIT_MODES)
def test_initialisation(mode: str) -> None:
    """Each matrix by itself, though some share a tensor; norms, offsets and biases zero; the EMA's as published."""
    torch.manual_seed(0)
    shape: Dict[str, Any] = {
        "embed_dim": 96,
        "hidden_dim": 200,
        "z_dim": 40,
        "ffn_dim": 200,
        "norm_groups": 4,
        "swiglu": True,
    }
    built = MegalodonLayer(MegalodonLayerConfig(**shape, init_mode=mode, layer_scale=True), index=3)
    attention, forward = built.attention, built.feed_forward
    parts = dict(zip(("z", "gate", "candidate"), attention.gate_proj.weight.split((40, 200, 96))))
    up = [attention.value_proj.weight, parts["gate"], *forward.input_proj.weight.chunk(2)]
    if mode != "none":
        for weight in up:
            assert weight.std().item() == pytest.approx(STD[mode], rel=0.03)
        factor = math.sqrt((96 + 200) / (96 + 40)) if mode == "xavier" else 1.0
        assert parts["z"].std().item() == pytest.approx(factor * STD[mode], rel=0.05)
    if mode == "gaussian":
        assert max(weight.abs().max().item() for weight in up) <= 3 * 96**-0.5
    ema = attention.ema
    zeros: List[Any] = [attention.kappa, attention.mu, attention.norm.weight, attention.norm.bias, forward.norm.weight]
    zeros += [attention.value_proj.bias, attention.gate_proj.bias, attention.ema_norm.weight, ema.gamma[..., 1]]
    assert not any(tensor.any() for tensor in zeros)
    assert not any("output_proj.bias" in name or "input_proj.bias" in name for name, _ in built.named_parameters())
    assert forward.scale is not None and (forward.scale == 0.1 / 8).all()
    assert ema.alpha.std().item() == pytest.approx(0.2, rel=0.1) and ema.omega.abs().max() <= 1
    assert ema.delta.std().item() == pytest.approx(0.2, rel=0.1)
    assert ema.gamma[..., 0].std().item() == pytest.approx(1, rel=0.1)
    angles = torch.sigmoid(ema.theta.flatten()).sort().values
    expected = torch.exp(-torch.arange(96, 0, -1.0) * math.log(96) / 96)
    torch.testing.assert_close(angles, expected)
    assert not torch.equal(torch.sigmoid(ema.theta.flatten()), angles)
