"""Outputs of the published code on a fixed parameter fill (float32, evaluation mode, tolerance 2e-5)."""

import math
from typing import Any, Dict

import pytest
import torch

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.cross_attention import GatedCrossAttention
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.feed_forward import NormalizedFeedForward
from fairseq_mega.modules.gated_attention import GatedAttention
from fairseq_mega.ops.attention import laplace
from tests.support.layers import run

TOLERANCE = 2e-5
LENGTH, BATCH, WIDTH = 6, 2, 4


def fill(module):
    """Fill every parameter with 0.5 sin(1), 0.5 sin(2), ... in row-major order."""
    with torch.no_grad():
        for parameter in module.parameters():
            steps = torch.arange(1, parameter.numel() + 1, dtype=torch.float64)
            parameter.copy_((0.5 * torch.sin(steps)).view_as(parameter))
    return module.eval()


def wave(length, batch=BATCH, width=WIDTH):
    """x[b, t, j] = cos(0.3 t + 0.7 b + 1.1 j), batch first."""
    t = torch.arange(length, dtype=torch.float64)[None, :, None]
    b = torch.arange(batch, dtype=torch.float64)[:, None, None]
    j = torch.arange(width, dtype=torch.float64)[None, None, :]
    return torch.cos(0.3 * t + 0.7 * b + 1.1 * j).float()


def padding():
    mask = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    mask[1, 4:] = True
    return mask


def config(**changes):
    return MegaLayerConfig(
        **{"embed_dim": 4, "hidden_dim": 6, "z_dim": 4, "ema_dim": 3, "max_positions": 16, **changes}
    )


def check(out, first, last, total):
    assert out.shape == (BATCH, LENGTH, WIDTH)
    torch.testing.assert_close(out[0, 0], torch.tensor(first), atol=TOLERANCE, rtol=0)
    torch.testing.assert_close(out[1, 5], torch.tensor(last), atol=TOLERANCE, rtol=0)
    assert out.double().sum().item() == pytest.approx(total, abs=TOLERANCE)


EMA_CASES: Dict[str, Any] = {
    "causal": (
        {}, False,
        [0.354060, 0.138593, -0.057479, 0.161921], [-0.136577, -0.239150, -0.100983, -0.092085], -0.519879,
    ),
    "bidirectional": (
        {"bidirectional": True}, False,
        [0.599812, 0.114146, -0.157378, 0.028209], [-0.162552, -0.251941, -0.116766, -0.066627], -1.212211,
    ),
    "truncated": (
        {"bidirectional": True, "truncation": 2}, False,
        [0.532993, 0.172581, -0.117460, 0.070367], [-0.171353, -0.232396, -0.071925, -0.050334], -0.661703,
    ),
    "padded": (
        {"bidirectional": True}, True,
        [0.599812, 0.114146, -0.157378, 0.028209], [-0.097087, -0.207633, -0.063110, -0.129558], -0.908246,
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", ["reference", "torch_fft"])
@pytest.mark.parametrize("case", EMA_CASES)
def test_ema(case, path, monkeypatch):
    options, padded, first, last, total = EMA_CASES[case]
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", f"ema={path}")
    ema = fill(MultiDimensionalDampedEMA(WIDTH, 3, **options))
    out, state = ema(wave(LENGTH), padding_mask=padding() if padded else None)
    assert state is None
    check(out, first, last, total)


def test_ema_state():
    ema = fill(MultiDimensionalDampedEMA(WIDTH, 3))
    _, state = ema(wave(4), return_state=True)
    torch.testing.assert_close(state[0, 0], torch.tensor([0.454346, 0.488733, 0.077800]), atol=TOLERANCE, rtol=0)
    assert state.sum().item() == pytest.approx(0.855518, abs=TOLERANCE)


ATTENTION_CASES: Dict[str, Any] = {
    "causal softmax layernorm pre": (
        {"normalize_before": True}, False,
        [0.843812, 0.234625, -0.336201, -0.643390], [0.124378, -0.298417, -0.228004, 0.313816], -3.045761,
    ),
    "causal softmax rotary chunk 3": (
        {"normalize_before": True, "relative_bias": "rotary", "chunk_size": 3}, False,
        [0.843812, 0.234625, -0.336201, -0.643390], [0.120493, -0.300494, -0.228516, 0.313780], -3.107149,
    ),
    "bidirectional laplace batchnorm pre": (
        {"normalize_before": True, "bidirectional": True, "attention_function": "laplace", "norm": "batchnorm"}, False,
        [0.838385, 0.195843, -0.326982, -0.627700], [0.108613, -0.307236, -0.226500, 0.314690], -3.692478,
    ),
    "bidirectional relu2 scalenorm post": (
        {"bidirectional": True, "attention_function": "relu2", "norm": "scalenorm"}, False,
        [0.589876, 0.162608, -0.232992, -0.528552], [-0.107843, -0.372423, -0.402091, 0.629240], -5.545072,
    ),
    "bidirectional softmax scalenorm post padded": (
        {"bidirectional": True, "norm": "scalenorm"}, True,
        [0.594344, 0.157196, -0.239095, -0.522424], [-0.037999, -0.461648, -0.394539, 0.581149], -5.767708,
    ),
    "bidirectional laplace rmsnorm pre padded": (
        {"normalize_before": True, "bidirectional": True, "attention_function": "laplace", "norm": "rmsnorm"}, True,
        [0.729612, 0.237307, -0.341269, -0.669885], [-0.014210, -0.193408, -0.241930, 0.343722], -4.252514,
    ),
}  # fmt: skip


@pytest.mark.parametrize("path", ["reference", "torch", "torch_blockwise"])
@pytest.mark.parametrize("case", ATTENTION_CASES)
def test_gated_attention(case, path, monkeypatch):
    options, padded, first, last, total = ATTENTION_CASES[case]
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", f"attention={path}")
    layer = fill(GatedAttention(config(**options)))
    out = run(layer, wave(LENGTH), padding_mask=padding() if padded else None).hidden
    check(out, first, last, total)


def test_feed_forward():
    layer = fill(NormalizedFeedForward(config(ffn_dim=6, normalize_before=True)))
    check(
        layer(wave(LENGTH))[0],
        [1.846397, 1.257176, -0.273536, -1.245471],
        [0.213032, -0.213770, -0.004864, 0.456551],
        4.985691,
    )


CROSS_CASES: Dict[str, Any] = {
    "softmax layernorm post": (
        {}, [0.795224, 0.904333, 0.038235, 0.159324], [0.029119, 0.270478, 0.045788, -1.016747], 11.628016,
    ),
    "laplace layernorm pre": (
        {"attention_function": "laplace", "normalize_before": True},
        [0.434595, 0.371597, -0.272112, -0.532174], [0.006699, -0.389193, -0.105855, 0.319181], -4.685771,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CROSS_CASES)
def test_cross_attention(case):
    options, first, last, total = CROSS_CASES[case]
    layer = fill(GatedCrossAttention(config(cross_max_positions=16, **options)))
    mask = torch.zeros(BATCH, 5, dtype=torch.bool)
    mask[1, :2] = True
    out, state, weights = layer(wave(LENGTH), layer.start(0.5 * wave(5), mask), need_weights=True)
    check(out, first, last, total)
    assert state.step == LENGTH
    without, _, none = layer(wave(LENGTH), layer.start(0.5 * wave(5), mask))
    check(without, first, last, total)
    assert none is None
    assert weights.shape == (BATCH, LENGTH, 5) and weights[1, :, :2].eq(0).all()


def test_laplace():
    x = torch.tensor([-1.0, 0.0, 0.5, 0.707107, 1.0, math.sqrt(2)])
    expected = torch.tensor([0.0, 0.00609446, 0.23142115, 0.5, 0.85042965, 0.99390554])
    torch.testing.assert_close(laplace(x), expected, atol=1e-6, rtol=0)
