"""Stochastic depth: what a layer gives where its sub-layers are omitted, on average, and in evaluation."""

import pytest
import torch

from fairseq_mega.modules import MegaLayer, MegaLayerConfig
from fairseq_mega.modules.dropout import Dropout, StochasticDepth, dropped_addition
from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer

SHAPE = {"embed_dim": 8, "hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "bidirectional": True}


def layer(**changed) -> MegaLayer:
    torch.manual_seed(0)
    return MegaLayer(MegaLayerConfig(**{**SHAPE, "normalize_before": True, **changed})).double()


def megalodon(**changed) -> MegalodonLayer:
    torch.manual_seed(0)
    return MegalodonLayer(MegalodonLayerConfig(**{**SHAPE, "norm_groups": 2, **changed}))


def drawn(p: float, samples: int):
    """The factors (B, 1, 1) of both sub-layers, as they are drawn from a seed."""
    torch.manual_seed(3)
    first, second = (torch.nn.functional.dropout(torch.ones(samples, 1, 1).double(), p) for _ in range(2))
    assert first.unique().numel() == second.unique().numel() == 2 and not first.equal(second)
    return first, second


def test_whole_samples_are_omitted_and_the_mean_stays():
    torch.manual_seed(0)
    x = torch.rand(20_000, 3, 2, dtype=torch.float64) + 1
    out = StochasticDepth(0.3)(x)
    factors = (out / x).flatten(1)
    assert factors.std(1).max() < 1e-12  # one for all of a sample
    kept = factors[:, 0] > 0
    torch.testing.assert_close(factors[kept], torch.full_like(factors[kept], 1 / 0.7))
    assert abs(kept.double().mean() - 0.7) < 0.02 and abs(factors.mean() - 1) < 0.02


def gated(attention, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """Compute the attention's output with its candidate multiplied by (B,) factors."""
    attention = attention.eval()
    average, _ = attention.ema(attention.norm(x))
    update = torch.sigmoid(attention.gate_proj(average)[..., : x.size(-1)])
    candidate = (attention(x).hidden - (1 - update) * x) / update
    return x + update * (factors[:, None, None] * candidate - x)


def test_where_the_factors_stand():
    """Before the update gate, so that without its candidate a sample keeps (1 - u) x, and on the FFN's branch."""
    x = torch.randn(64, 5, 8, dtype=torch.float64)
    deep = layer(stochastic_depth=0.4).train()
    torch.manual_seed(3)
    out = deep(x).hidden
    first, second = drawn(0.4, 64)
    hidden = gated(deep.attention, x, first.flatten())
    assert deep.feed_forward is not None
    branch = deep.feed_forward.eval()(hidden)[0] - hidden
    torch.testing.assert_close(out, hidden + second * branch, atol=1e-9, rtol=0)


@pytest.mark.parametrize("hops", [1, 2])
def test_where_the_factors_stand_in_megalodon(hops):
    """On what each sub-layer adds; with two hops a sample without the FFN's branch leaves the layer as it came."""
    x = torch.randn(64, 5, 8, dtype=torch.float64)
    deep = megalodon(stochastic_depth=0.4, residual_hops=hops).double().train()
    torch.manual_seed(3)
    out = deep(x).hidden
    first, second = drawn(0.4, 64)
    plain = deep.eval()
    hidden = x + first * (plain.attention(x).hidden - x)
    residual = x if hops == 2 else hidden
    branch = plain.feed_forward(hidden, residual) - residual
    torch.testing.assert_close(out, residual + second * branch, atol=1e-9, rtol=0)
    assert hops == 1 or out[second.flatten() == 0].equal(x[second.flatten() == 0])


def test_steps_that_drop_are_no_plain_ones():
    """Some 180 of 200 samples, few at a time, skip each sub-layer, also where decoding keeps its dropout."""
    deep = megalodon(stochastic_depth=0.9, bidirectional=False).eval()
    for part in deep.modules():
        if isinstance(part, StochasticDepth):
            part.make_generation_fast_("", retain_dropout=True)
    x, context = torch.randn(4, 1, 8), LayerContext(return_state=True)
    with torch.no_grad():
        calls = [(deep.attention(x, context).hidden, deep.feed_forward(x, x)) for _ in range(50)]
    assert all(100 < sum(int((out == x).all(-1).sum()) for out in outputs) < 200 for outputs in zip(*calls))


@pytest.mark.parametrize("feature", [False, True])
def test_a_bias_apart_keeps_the_type_of_the_sum(feature):
    """The bias of a linear map is float32 where the map's result is not."""
    x, bias = torch.randn(2, 3, 4, dtype=torch.bfloat16), torch.randn(4)
    dropout, depth = Dropout(0.0, feature=feature), StochasticDepth(0.0)
    found = dropped_addition(x, None, dropout, depth, bias).to(x)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found, x + (x + bias.bfloat16()))
