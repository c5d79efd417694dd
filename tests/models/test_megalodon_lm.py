"""MEGALODON's language model: counts, streams in random pieces, the window of statistics."""

import re
from typing import Any, Dict, List

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_mega.modules.layer import LayerContext
from tests.support import tiny_classifier, tiny_images
from tests.support.tiny_lm import advance, log_probs, tokens
from tests.support.tiny_mega import PAD, lively
from tests.support.tiny_megalodon import build

LENGTH = 23


@pytest.mark.parametrize(
    ("arch", "symbols", "count"),
    [
        ("megalodon_lm_200m", 32_000, 220_627_968),
        ("megalodon_lm_1b3", 32_000, 1_342_832_640),
        ("megalodon_lm_1b3_pg19", 32_000, 1_327_628_288),
        ("megalodon_lm_7b", 32_000, 7_385_817_088),
        ("megalodon_lm_wiki103", 267_744, 252_182_528),
    ],
)
def test_parameter_counts(arch, symbols, count):
    """The published code's; WikiText-103: 252M, MEGALODON, Table 8. Four of the tokens are the dictionary's own."""
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build(arch=arch, symbols=symbols - 4).parameters()) == count


@settings(max_examples=15)
@given(lengths=st.lists(st.integers(1, 12), min_size=1, max_size=8), chunk=st.sampled_from([-1, 1, 4, 5, 30]))
def test_random_pieces_equal_the_whole(lengths, chunk):
    model = lively(build(decoder_chunk_size=chunk))
    read = tokens(2, sum(lengths))
    whole = log_probs(model, read)
    ends = torch.tensor(lengths).cumsum(0) - 1
    for pieces, positions in ((lengths, ends), ((1,) * read.size(1), slice(None))):
        torch.testing.assert_close(advance(model, read.split(pieces, dim=1)), whole[:, positions], atol=2e-6, rtol=0)


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
    plain, windowed = (lively(build(**options, statistics_window=window)) for window in (0, 4))
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
    model, read = build().eval(), tokens(2, 240)
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


def test_float16_is_refused():
    with pytest.raises(ValueError, match="^--fp16 or --amp: .* give --bf16, or use float32$"):
        build().half()(tokens(2, 6))


def test_a_table_is_drawn_within_three_deviations():
    model = build(symbols=3000, decoder_embed_dim=16, share_decoder_input_output_embed=False)
    for table in (model.decoder.embedding.table, model.decoder.output_projection.weight):
        assert table.abs().max() <= 3 / 4 and table.std().item() == pytest.approx(0.987 / 4, rel=0.02)
    assert not model.decoder.embedding.table[PAD].any()


@pytest.mark.parametrize("kind", ["megalodon_lm", "megalodon_lra", "megalodon_image"])
def test_norms_over_time_have_scale_and_shift_without_affine_norms_too(kind):
    """States that were saved without them, scale one and shift zero then, are read; half of one is no state."""
    builders: Dict[str, Any] = {"megalodon_lm": build, "megalodon_image": tiny_images.build}
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
    lively(plain)
    old = {name: tensor for name, tensor in plain.state_dict().items() if name not in over_time}
    plain.load_state_dict(dict(old))
    assert not any(plain.state_dict()[name].any() for name in over_time)
    damaged = {**old, sorted(over_time)[0]: plain.state_dict()[sorted(over_time)[0]]}
    with pytest.raises(RuntimeError, match="Missing key"):
        plain.load_state_dict(damaged)
    with pytest.raises(RuntimeError, match="Missing key"):
        affine.load_state_dict({name: tensor for name, tensor in affine.state_dict().items() if name not in over_time})
