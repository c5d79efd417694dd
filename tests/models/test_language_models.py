"""Language models: what the contract does not say of one: biases, sizes, Llama's formula, MEGALODON's statistics."""

import math
import re
from typing import Any, Dict, List

import pytest
import torch
from torch import Tensor

from fairseq_mega.modules.layer import LayerContext
from fairseq_mega.modules.llama_layer import LlamaLayer, LlamaLayerConfig
from tests.support import tiny_classifier, tiny_images, tiny_llama, tiny_lm, tiny_megalodon
from tests.support.numerics import assert_close, gradients, leaves
from tests.support.tiny_lm import advance, log_probs, tokens
from tests.support.tiny_mega import PAD, lively


def test_checkpoints_of_simple_biases():
    """A shorter test chunk takes the middle of the bias, a longer one is refused."""
    trained = lively(tiny_lm.build(rel_pos_bias="simple", decoder_chunk_size=6)).float()
    shorter = tiny_lm.build(seed=1, rel_pos_bias="simple", decoder_chunk_size=4).eval()
    shorter.load_state_dict(trained.state_dict())
    read = tokens(2, 4)
    torch.testing.assert_close(shorter(read)[0], trained(read)[0])
    longer = tiny_lm.build(rel_pos_bias="simple", decoder_chunk_size=7)
    with pytest.raises(ValueError, match="a chunk of 7 is longer than the 6 positions .* --rel-pos-bias rotary"):
        longer.load_state_dict(trained.state_dict())


def test_an_old_checkpoint_may_hold_a_fingerprint_and_lack_buffers():
    given = tiny_lm.build(**tiny_lm.ADAPTIVE).state_dict()
    given["decoder.dictionary_fingerprint"] = torch.tensor([7])
    del given["decoder.adaptive_softmax.version"]
    tiny_lm.build(**tiny_lm.ADAPTIVE).load_state_dict(given)


def test_positions_are_limited_only_by_a_simple_bias_without_chunks():
    assert tiny_lm.build(rel_pos_bias="simple", decoder_chunk_size=-1).max_positions() == 64
    assert tiny_lm.build(decoder_chunk_size=-1).max_positions() > 10**8
    assert tiny_lm.build(rel_pos_bias="simple").max_positions() > 10**8


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


def test_default_ffn_is_llamas():
    """Llama 7B: d = 4096, an FFN of 11,008."""
    with torch.device("meta"):
        model = tiny_llama.build(
            decoder_embed_dim=4096, decoder_attention_heads=32, decoder_layers=1, decoder_ffn_embed_dim=None
        )
    layer = model.decoder.layers[0]
    assert layer.inner_proj.in_features == 11008
    assert sum(p.numel() for p in layer.parameters()) == 4 * 4096**2 + 3 * 4096 * 11008 + 2 * 4096


def published_window(model, read, chunk, window):
    """Log probabilities of a text read as the published code reads it: two chunks at a time, then the statistics."""
    stream = LayerContext(return_state=True)
    outputs: List[Any] = []
    state: Any = None
    for begin in range(0, read.size(1), 2 * chunk):
        out = model.decoder.run(read[:, begin : begin + 2 * chunk], stream, state)
        outputs.append(out.hidden)
        state, end = out.state, begin + 2 * chunk
        if window + 2 <= end // chunk:
            fresh = model.decoder.run(read[:, end - window * chunk : end], stream).state.memory
            layers = tuple(old._replace(norm=new.norm) for old, new in zip(state.memory.layers, fresh.layers))
            state = state._replace(memory=state.memory._replace(layers=layers, final_norm=fresh.final_norm))
    features = model.decoder.output_layer(torch.cat(outputs, dim=1))
    return model.get_normalized_probs((features, None), log_probs=True).float()


@pytest.mark.parametrize("pieces", [(59,), (1,) * 59, (20, 20, 19), (7, 33, 19)])
def test_window_of_statistics(pieces):
    """The window is the published code's, whatever the pieces; nothing differs before the first refreshment."""
    options = {"decoder_chunk_size": 5}
    plain, windowed = (lively(tiny_megalodon.build(**options, statistics_window=window)) for window in (0, 4))
    windowed.load_state_dict(plain.state_dict())
    read = tokens(2, 59)
    expected = published_window(plain, read, 5, 4)
    ends = torch.tensor(pieces).cumsum(0) - 1
    found = advance(windowed, read.split(pieces, dim=1))
    torch.testing.assert_close(found, expected[:, ends], atol=2e-6, rtol=0)
    whole = log_probs(plain, read)
    torch.testing.assert_close(expected[:, :30], whole[:, :30], atol=2e-6, rtol=0)
    assert (expected[:, 30:] - whole[:, 30:]).abs().amax(dim=-1).min() > 1e-6
    torch.testing.assert_close(log_probs(windowed, read), whole)  # one call without a state


@torch.no_grad()
def test_no_step_of_a_long_stream_rounds_its_statistics():
    """Mean 100, token by token, half of it after a change of precision, which is the weights' alone."""
    model, read = tiny_megalodon.build().eval(), tokens(2, 240)
    embedding = model.decoder.embedding
    for parameter in embedding.parameters():
        parameter.copy_((parameter + 100).bfloat16())
    seen = embedding(read).double().unflatten(-1, (2, -1))
    state: Any = None
    for step, token in enumerate(read.split(1, dim=1)):
        if step == 120:  # a chunk begins
            model, state = model.bfloat16(), state._replace(cache=None)
        _, state = model.decoder.advance(token, state)
    statistics = state.memory.layers[0].norm
    torch.testing.assert_close(statistics.mean, seen.mean(dim=(1, 3)), rtol=0, atol=1e-6)
    assert all(part.dtype == torch.float64 for part in (*statistics[1:], *state.memory.final_norm[1:]))


def test_a_table_of_megalodon_is_drawn_within_three_deviations():
    model = tiny_megalodon.build(symbols=3000, decoder_embed_dim=16, share_decoder_input_output_embed=False)
    for table in (model.decoder.embedding.table, model.decoder.output_projection.weight):
        assert table.abs().max() <= 3 / 4 and table.std().item() == pytest.approx(0.987 / 4, rel=0.02)
    assert not model.decoder.embedding.table[PAD].any()


@pytest.mark.parametrize("kind", ["megalodon_lm", "megalodon_lra", "megalodon_image"])
def test_norms_over_time_have_scale_and_shift_without_affine_norms_too(kind):
    """As in the published code."""
    builders: Dict[str, Any] = {"megalodon_lm": tiny_megalodon.build, "megalodon_image": tiny_images.build}
    builders["megalodon_lra"] = tiny_classifier.build
    arch = {} if kind == "megalodon_lm" else {"arch": kind}
    plain, affine = (builders[kind](**arch, no_affine_norm=switch) for switch in (True, False))
    over_time = {
        name for name in plain.state_dict() if re.search(r"\.(attention\.norm|final_norm)\.(weight|bias)$", name)
    }
    layers = {name.split(".layers.")[1][0] for name in plain.state_dict() if ".layers." in name}
    assert len(over_time) == 2 * (len(layers) + 1)  # and of the end
    gone = {name for name in affine.state_dict() if name not in plain.state_dict()}
    assert gone and all(re.search(r"(ema_norm|feed_forward\.norm)\.(weight|bias)$", name) for name in gone)
