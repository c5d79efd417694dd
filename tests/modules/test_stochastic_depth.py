"""Stochastic depth: what a layer gives where its sub-layers are left out, on average, and in evaluation."""

import pytest
import torch

from fairseq_mega.modules import MegaLayer, MegaLayerConfig
from fairseq_mega.modules.dropout import StochasticDepth
from fairseq_mega.modules.errors import FieldError

SHAPE = {"embed_dim": 8, "hidden_dim": 12, "z_dim": 4, "ema_dim": 3, "ffn_dim": 10, "bidirectional": True}


def layer(**changed) -> MegaLayer:
    torch.manual_seed(0)
    return MegaLayer(MegaLayerConfig(**{**SHAPE, "normalize_before": True, **changed})).double()


def test_whole_samples_are_left_out_and_the_mean_stays():
    torch.manual_seed(0)
    x = torch.rand(20_000, 3, 2, dtype=torch.float64) + 1
    out = StochasticDepth(0.3)(x)
    factors = (out / x).flatten(1)
    assert factors.std(1).max() < 1e-12  # one for all of a sample
    kept = factors[:, 0] > 0
    torch.testing.assert_close(factors[kept], torch.full_like(factors[kept], 1 / 0.7))
    assert abs(kept.double().mean() - 0.7) < 0.02 and abs(factors.mean() - 1) < 0.02


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_evaluation_leaves_nothing_out(dropout):
    x = torch.randn(4, 9, 8, dtype=torch.float64)
    plain, deep = layer(dropout=dropout).eval(), layer(dropout=dropout, stochastic_depth=0.9).eval()
    assert deep(x).hidden.equal(plain(x).hidden)


def gated(attention, x: torch.Tensor, factors: torch.Tensor) -> torch.Tensor:
    """What the attention gives if its candidate is multiplied by (B,) factors."""
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
    torch.manual_seed(3)
    first, second = (torch.nn.functional.dropout(torch.ones(64, 1, 1, dtype=torch.float64), 0.4) for _ in range(2))
    assert first.unique().numel() == second.unique().numel() == 2 and not first.equal(second)
    hidden = gated(deep.attention, x, first.flatten())
    assert deep.feed_forward is not None
    branch = deep.feed_forward.eval()(hidden) - hidden
    torch.testing.assert_close(out, hidden + second * branch, atol=1e-9, rtol=0)


def test_a_probability_is_needed():
    with pytest.raises(FieldError, match=r"stochastic_depth 1.0: .*\[0, 1\)"):
        layer(stochastic_depth=1.0)
