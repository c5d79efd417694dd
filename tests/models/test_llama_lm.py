"""The Llama-style language model: its layer written out step after step, dropout, sizes."""

import math
from typing import Dict, List

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.llama_layer import LlamaLayer, LlamaLayerConfig
from tests.support.numerics import assert_close, gradients, leaves
from tests.support.tiny_llama import build
from tests.support.tiny_lm import tokens
from tests.support.tiny_mega import lively

D, HEADS, FFN = 8, 2, 10


def turned(x, position, base):
    """The pairs (2 i, 2 i + 1) of x (E,) as complex numbers, turned by ``position base^(-2 i / E)``."""
    angles = position * base ** (-torch.arange(0, x.numel(), 2, dtype=torch.float64) / x.numel())
    pairs = torch.complex(x[0::2].double(), x[1::2].double()) * torch.polar(torch.ones_like(angles), angles)
    return torch.stack([pairs.real, pairs.imag], -1).flatten().to(x.dtype)


def written_out(parameters, x, base):
    """The layer for one sequence (L, D), a position and a head at a time."""

    def norm(v, name):
        return v / torch.sqrt((v * v).mean() + 1e-5) * parameters[f"{name}.weight"]

    keys, values, outputs = [], [], []
    for position, step in enumerate(x):
        parts = (parameters["input_proj.weight"] @ norm(step, "attention_norm")).view(3, HEADS, -1)
        keys.append([turned(head, position, base) for head in parts[1]])
        values.append(parts[2])
        heads = []
        for head in range(HEADS):
            query = turned(parts[0, head], position, base)
            logits = torch.stack([query @ key[head] for key in keys]) / math.sqrt(query.numel())
            weights = torch.exp(logits) / torch.exp(logits).sum()
            heads.append(sum(weight * value[head] for weight, value in zip(weights, values)))
        hidden = step + parameters["output_proj.weight"] @ torch.cat(heads)
        gate, inner = (parameters["gate_proj.weight"] @ norm(hidden, "feed_forward_norm")).chunk(2)
        outputs.append(hidden + parameters["inner_proj.weight"] @ (gate * torch.sigmoid(gate) * inner))
    return torch.stack(outputs)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("length", [1, 2, 7])
def test_layer_is_the_formula(dtype, length):
    torch.manual_seed(0)
    layer = lively(LlamaLayer(LlamaLayerConfig(D, HEADS, FFN, rope_base=100.0))).train()
    x = torch.randn(2, length, D, dtype=torch.float64)
    results: List[Dict[str, Tensor]] = []
    for function in (
        layer,
        lambda rows: torch.stack([written_out(dict(layer.named_parameters()), r, 100.0) for r in rows]),
    ):
        layer.to(torch.float64 if results else dtype)
        inputs = leaves({"x": x}, torch.float64 if results else dtype)
        out = function(inputs["x"])
        out = getattr(out, "hidden", out)
        results.append({"output": out, **gradients(out, {**inputs, **dict(layer.named_parameters())})})
        results[-1] = {name: value.detach().clone() for name, value in results[-1].items()}
    for name, want in results[1].items():
        assert_close(name, results[0][name], want)


@pytest.mark.parametrize("options", [{"dropout": 0.2}, {"attention_dropout": 0.1}])
def test_dropout_acts_in_training_alone(options):
    model, read = lively(build(**options)), tokens(2, 9)
    whole = model(read)[0]
    torch.testing.assert_close(whole, lively(build())(read)[0])
    assert (model.train()(read)[0] - whole).abs().max() > 1e-3


def test_default_ffn_is_llamas():
    """Llama 7B: d = 4096, an FFN of 11,008."""
    with torch.device("meta"):
        model = build(decoder_embed_dim=4096, decoder_attention_heads=32, decoder_layers=1, decoder_ffn_embed_dim=None)
    layer = model.decoder.layers[0]
    assert layer.inner_proj.in_features == 11008
    assert sum(p.numel() for p in layer.parameters()) == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096


def test_bad_dropout_names_the_field():
    with pytest.raises(FieldError, match="dropout"):
        LlamaLayerConfig(8, 2, 10, dropout=1.0)
