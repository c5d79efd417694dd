"""MEGALODON's layer: values and gradients against the plain formulas, dropout, precision, initialisation."""

import math
from typing import Any, Dict, List

import pytest
import torch

from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.initialization import INIT_MODES
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from tests.support.layers import run
from tests.support.plain import megalodon

SHAPE: Dict[str, Any] = {
    "embed_dim": 8,
    "hidden_dim": 12,
    "z_dim": 8,
    "ffn_dim": 10,
    "heads": 2,
    "ema_dim": 3,
    "norm_groups": 2,
}


def lively(seed: int = 0, **options: Any) -> MegalodonLayer:
    """A layer in float64, away from its start, where norms and offsets do nothing."""
    torch.manual_seed(seed)
    layer = MegalodonLayer(MegalodonLayerConfig(**{**SHAPE, **options}), index=1).double().eval()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer


def published(layer: Any, swiglu: bool) -> Dict[str, torch.Tensor]:
    """The parameters of a layer under their published names."""
    attention, feed_forward = layer.attention, layer.feed_forward
    found = {f"mega.cema.{name}": getattr(attention.ema, name).unsqueeze(-1) for name in ("alpha", "delta", "theta")}
    found.update({"mega.cema.gamma": attention.ema.gamma, "mega.cema.omega": attention.ema.omega.unsqueeze(-1)})
    weights, biases = (part.split(attention.widths) for part in attention.gate_proj.parameters())
    for name, weight, bias in zip(("wz", "wr", "wh1"), weights, biases):
        found.update({f"mega.{name}.weight": weight, f"mega.{name}.bias": bias})
    inner = feed_forward.input_proj.weight.chunk(2 if swiglu else 1)
    found.update({f"nffn.{name}.weight": weight for name, weight in zip(("fc1", "fc3"), inner)})
    found.update({"mega.gamma": attention.kappa, "mega.beta": attention.mu})
    for name, part in (
        ("mega.timenorm", attention.norm),
        ("mega.rmsnorm", attention.ema_norm),
        ("mega.wv", attention.value_proj),
        ("mega.wh2", attention.output_proj),
        ("nffn.norm", feed_forward.norm),
        ("nffn.fc2", feed_forward.output_proj),
    ):
        found.update({f"{name}.{own}": parameter for own, parameter in part.named_parameters()})
    return found if feed_forward.scale is None else {**found, "nffn.alpha": feed_forward.scale}


VARIANTS: Dict[str, Dict[str, Any]] = {
    "plain": {},
    "chunks": {"chunk_size": 4, "swiglu": True, "rope_base": 100.0},
    "one hop": {"residual_hops": 1, "chunk_size": 4, "swiglu": True},
    "one head": {"heads": 1, "layer_scale": True},
    "groups of one": {"norm_groups": 8, "chunk_size": 4},
    "one group": {"norm_groups": 1, "swiglu": True, "layer_scale": True},
    "bidirectional": {"bidirectional": True},
    "bidirectional chunks": {"bidirectional": True, "chunk_size": 4, "ema_norm": "silu", "swiglu": True},
}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("variant", VARIANTS)
def test_all_gradients_against_the_plain_layer(variant: str, padded: bool) -> None:
    options = VARIANTS[variant]
    built = lively(**options)
    config = MegalodonLayerConfig(**{**SHAPE, **options})
    x = torch.randn(3, 11, 8, dtype=torch.float64)
    mask = None
    if padded:
        mask = torch.zeros(3, 11, dtype=torch.bool)
        mask[0, 9:] = mask[1, :2] = mask[2, 4] = True
    theirs = {**vars(config), "num_heads": config.heads, "norm_num_groups": config.norm_groups}
    weights = torch.randn(3, 11, 8, dtype=torch.float64)
    if mask is not None:
        weights.masked_fill_(mask.unsqueeze(-1), 0.0)
    found = []
    for compute in (
        lambda x: run(built, x, padding_mask=mask).hidden,
        lambda x: megalodon.layer(published(built, config.swiglu), theirs, x, mask),
    ):
        leaf = x.clone().requires_grad_()
        out = compute(leaf)
        gradients = torch.autograd.grad((out * weights).sum(), [leaf, *built.parameters()])
        found.append([out if mask is None else out[~mask], *gradients])
    names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in built.named_parameters())]
    for name, got, want in zip(names, *found):
        assert want.abs().max() > 1e-6, f"{name} says nothing"
        assert (got - want).abs().max() <= 1e-8 + 1e-6 * want.abs().max(), name


def test_dropouts() -> None:
    """Each of them acts in training alone; keys are dropped by default, weights where asked for."""
    x = torch.randn(3, 12, 8, dtype=torch.float64)
    for options in (
        {"dropout": 0.5},
        {"hidden_dropout": 0.5},
        {"attention_dropout": 0.5},
        {"attention_dropout": 0.5, "attention_drops": "weights"},
    ):
        built = lively(swiglu=True, **options)
        torch.testing.assert_close(built(x).hidden, lively(swiglu=True)(x).hidden)
        built.train()
        torch.manual_seed(1)
        first = built(x).hidden
        assert not torch.equal(first, built(x).hidden), options
        torch.manual_seed(1)
        assert torch.equal(first, built(x).hidden), options


@pytest.mark.parametrize("drops", ["keys", "weights"])
def test_what_the_attention_drops(drops: str) -> None:
    """Values of one: DropKey gives one, or zero where all keys went; dropped weights give the rest twice."""
    attention = lively(attention_dropout=0.5, attention_drops=drops).train().attention
    zeros = torch.zeros(400, 3, 8, dtype=torch.float64)
    out = attention._attend(zeros, zeros, torch.ones(400, 3, 12, dtype=torch.float64), None)
    first, last = (set(out[:, step].flatten().tolist()) for step in (0, 2))
    if drops == "keys":
        assert first == last == {0.0, 1.0} and out[:, 2].mean() > 0.8
    else:
        assert first == {0.0, 2.0} and len(last) == 4 and abs(out.mean() - 1) < 0.05


def test_small_scales_count_in_bfloat16() -> None:
    """1.0015 is 1 in bfloat16: the scale is made in float32."""
    built, x = lively(swiglu=True).bfloat16(), 8 * torch.randn(3, 30, 8).bfloat16()
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
