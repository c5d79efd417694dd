"""Norms, relative biases, dropout, initial values and option checks."""

import math
from typing import Any

import pytest
import torch
from torch import nn

from fairseq_mega.modules.activation import ACTIVATIONS
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.cross_attention import GatedCrossAttention
from fairseq_mega.modules.dropout import Dropout
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.feed_forward import NormalizedFeedForward
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.modules.norm import NORMS, build_norm
from fairseq_mega.modules.relative_bias import RotaryRelativeBias, SimpleRelativeBias
from fairseq_mega.ops.attention import toeplitz
from tests.support.numerics import assert_close


def test_norm_formulas():
    x = 3.0 * torch.randn(4, 7, 6, dtype=torch.float64) + 1.0
    centred = x - x.mean(-1, keepdim=True)
    square = x.square().mean(-1, keepdim=True)
    want = {
        "layernorm": centred / torch.sqrt(centred.square().mean(-1, keepdim=True) + 1e-5),
        "rmsnorm": x / torch.sqrt(square + 1e-5),
        "scalenorm": x / torch.sqrt(square + 1e-5),
    }
    flat = x.flatten(0, 1)
    want["batchnorm"] = want["syncbatchnorm"] = (
        (flat - flat.mean(0)) / torch.sqrt(flat.var(0, unbiased=False) + 1e-5)
    ).view_as(x)
    for kind in NORMS:
        norm = build_norm(kind, 6).double()
        torch.testing.assert_close(norm(x), want[kind], msg=kind)
        with torch.no_grad():
            for parameter in norm.parameters():
                parameter.mul_(2.0)
        torch.testing.assert_close(norm(x), 2.0 * want[kind], msg=kind)
        assert not list(build_norm(kind, 6, affine=False).parameters())


HALVES = {"half": nn.Module.half, "bfloat16": nn.Module.bfloat16, "to": lambda norm: norm.to(torch.float16)}


@pytest.mark.parametrize("kind", ["batchnorm", "syncbatchnorm"])
@pytest.mark.parametrize("convert", HALVES.values(), ids=HALVES)
def test_batchnorm_keeps_its_statistics_in_half_precision(kind, convert):
    """Outputs, gradients and running statistics are those of float32 but for the rounding of inputs and outputs."""
    torch.manual_seed(0)
    norm: Any = build_norm(kind, 3)
    wide: Any = build_norm(kind, 3)
    convert(norm)
    dtype = norm.weight.dtype
    assert norm.running_mean.dtype == norm.running_var.dtype == torch.float32
    for _ in range(80):
        x = (10.0 + torch.tensor([1.0, 20.0, 300.0]) * torch.randn(4, 50, 3)).to(dtype)
        inputs: Any = [x.clone().requires_grad_(), x.float().requires_grad_()]
        got, want = norm(inputs[0]), wide(inputs[1])
        weights = torch.randn_like(want).to(dtype)
        (got * weights).sum().backward()
        (want * weights.float()).sum().backward()
        assert got.dtype == inputs[0].grad.dtype == norm.weight.grad.dtype == dtype
        assert_close("output", got, want.double())
        assert_close("gradient", inputs[0].grad, inputs[1].grad.double())
    torch.testing.assert_close(norm.running_mean, wide.running_mean)
    torch.testing.assert_close(norm.running_var, wide.running_var)
    assert norm.running_var[2] > 65504 and norm.num_batches_tracked == 80
    assert_close("evaluation", norm.eval()(x), wide.eval()(x.float()).double())


def test_batchnorm_changes_its_precision_and_device_as_others_do():
    norm: Any = build_norm("batchnorm", 3)
    norm(torch.randn(2, 5, 3))
    before = norm.running_var.clone()
    assert norm.double().running_var.dtype == torch.float64 and norm.half().float().running_var.dtype == torch.float32
    torch.testing.assert_close(norm.running_var, before, rtol=0, atol=0)
    assert norm.half().to("meta").running_var.is_meta and norm.to_empty(device="cpu").running_var.shape == (3,)


@pytest.mark.parametrize("kinds", [("batchnorm", "syncbatchnorm"), ("syncbatchnorm", "batchnorm")])
@pytest.mark.parametrize("convert", [nn.Module.half, nn.Module.float])
def test_batchnorm_checkpoints_load_both_ways(kinds, convert):
    """Checkpoints load in any precision of model and checkpoint, also old ones with statistics in half precision."""
    norm: Any = build_norm(kinds[0], 3).half()
    norm(torch.randn(2, 5, 3).half())
    narrow = {name: value.half() if value.is_floating_point() else value for name, value in norm.state_dict().items()}
    for state in (norm.state_dict(), narrow):
        other: Any = convert(build_norm(kinds[1], 3))
        other.load_state_dict(state)
        assert other.running_var.dtype == torch.float32 and other.num_batches_tracked == 1
        torch.testing.assert_close(other.running_var, state["running_var"].float(), rtol=0, atol=0)


@pytest.mark.parametrize("kind", ["layernorm", "scalenorm", "rmsnorm"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_norms_do_not_overflow_in_half_precision(kind, dtype):
    norm = build_norm(kind, 64).to(dtype)
    x = (3000.0 * torch.randn(2, 3, 64)).to(dtype)
    want = build_norm(kind, 64)(x.float())
    assert norm(x).dtype == dtype
    torch.testing.assert_close(norm(x).float(), want, atol=1e-2, rtol=1e-2)


@pytest.mark.parametrize(("queries", "keys", "offset"), [(5, 5, 0), (1, 5, 4), (3, 7, 2), (4, 2, 0), (1, 9, 0)])
def test_simple_bias(queries, keys, offset):
    bias = SimpleRelativeBias(9)
    matrix = toeplitz(bias(queries, keys, offset), queries, keys)
    for i in range(queries):
        for j in range(keys):
            assert matrix[i, j] == bias.weight[9 - 1 + j - (i + offset)]


@pytest.mark.parametrize(("queries", "keys", "offset"), [(5, 5, 0), (1, 5, 4), (3, 7, 2), (4, 2, 0)])
def test_rotary_bias_is_a_product_of_rotated_vectors(queries, keys, offset):
    bias = RotaryRelativeBias(6).double()
    matrix = toeplitz(bias(queries, keys, offset), queries, keys)
    a = torch.complex(bias.alpha[0, :3], bias.alpha[0, 3:])
    c = torch.complex(bias.beta[0, :3], bias.beta[0, 3:])
    frequency = torch.tensor([10000.0 ** (-k / 3) for k in range(3)], dtype=torch.float64)
    for i in range(queries):
        for j in range(keys):
            turned = a * torch.exp(1j * frequency * (i + offset)), c * torch.exp(1j * frequency * j)
            torch.testing.assert_close(matrix[i, j], (turned[0] * turned[1].conj()).sum().real)


def test_rotary_bias_keeps_float32_angles_in_half_precision():
    bias = RotaryRelativeBias(8)
    with torch.no_grad():
        bias.alpha.copy_(bias.alpha.bfloat16())
        bias.beta.copy_(bias.beta.bfloat16())
    want = bias(3000, 3000).detach()
    torch.testing.assert_close(bias.bfloat16()(3000, 3000).float(), want, atol=1e-5, rtol=1e-2)


def test_feature_dropout_drops_features():
    torch.manual_seed(0)
    out = Dropout(0.5, feature=True)(torch.ones(3, 50, 40))
    assert set(out.unique().tolist()) == {0.0, 2.0}
    assert (out == out[:, :1]).all(), "a feature is dropped for all time steps"
    assert 0.3 < (out[:, 0] == 0).float().mean() < 0.7
    element = Dropout(0.5)(torch.ones(3, 50, 40))
    assert (element != element[:, :1]).any()
    assert Dropout(0.5, feature=True).eval()(torch.ones(2, 3, 4)).eq(1).all()


@pytest.mark.parametrize("name", ["gelu_accurate", "gelu_fast"])
def test_both_names_of_the_approximate_gelu(name):
    """Hendrycks and Gimpel (2016): x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))."""
    x = torch.linspace(-4.0, 4.0, 41, dtype=torch.float64)
    want = 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(ACTIVATIONS[name](x), want)
    assert (ACTIVATIONS["gelu"](x) - want).abs().max() > 1e-4
    assert MegaLayerConfig(embed_dim=4, hidden_dim=4, z_dim=4, activation=name).activation == name


def test_initial_values():
    """Distributions of the published initialisation: means within five standard errors, deviations within 5 %."""
    torch.manual_seed(0)
    config = MegaLayerConfig(embed_dim=256, hidden_dim=512, z_dim=128, ema_dim=16, ffn_dim=512, bidirectional=True)
    ema = MultiDimensionalDampedEMA(256, 16, bidirectional=True)
    signs = torch.tensor([1.0, -1.0]).repeat(8)

    def normal(tensor, std, mean=0.0):
        count = tensor.numel()
        assert abs(tensor.mean().item() - mean) < 5 * std / math.sqrt(count)
        assert abs(tensor.std().item() / std - 1) < max(0.05, 5 / math.sqrt(2 * count))

    for tensor, std in ((ema.alpha, 0.2), (ema.delta, 0.2), (ema.beta - signs, 0.02), (ema.eta, 1.0), (ema.omega, 1.0)):
        normal(tensor, std)
    assert ema.alpha.shape == (512, 16) and ema.omega.shape == (256,)
    attention, cross, feed = GatedAttention(config), GatedCrossAttention(config), NormalizedFeedForward(config)
    linears = [m for part in (attention, cross, feed) for m in part.modules() if isinstance(m, torch.nn.Linear)]
    assert len(linears) == 3 + 4 + 2
    for layer in linears:
        normal(layer.weight, 0.02)
        assert layer.bias.eq(0).all()
    normal(attention.kappa, 0.02)
    assert attention.mu.eq(0).all()
    normal(attention.relative_bias.weight, 0.02)
    normal(cross.relative_bias.weight, 0.02)


def test_ema_without_dimensions_is_the_skip():
    ema = MultiDimensionalDampedEMA(4, 0, bidirectional=True)
    x = torch.randn(2, 5, 4)
    out, _ = ema(x)
    torch.testing.assert_close(out, torch.nn.functional.silu(ema.omega * x))
