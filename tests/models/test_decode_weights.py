"""Decoding with packed matrices: close to the model as trained, on every way to ask for it."""

from argparse import Namespace
from typing import Any, Dict

import pytest
import torch

from fairseq_mega.models.decode_weights import pack_weights
from fairseq_mega.modules.packed_linear import PackedLinear
from tests.support import tiny_lm, tiny_mega
from tests.support.tiny_mega import batch, lively

ALLOWED = {"bf16": 0.02, "int8": 0.04}  # of the largest logit; rounding of 2^-9, and of 1 / 254 of a row's largest
SOFTMAXES: Dict[str, Dict[str, Any]] = {
    "shared": {},
    "untied": {"share_decoder_input_output_embed": False},
    "adaptive": tiny_lm.ADAPTIVE,
}


def packed_parts(model):
    return [part for part in model.modules() if isinstance(part, PackedLinear)]


@pytest.mark.parametrize("kind", ALLOWED)
@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_a_language_model(kind, softmax):
    model = lively(tiny_lm.build(**SOFTMAXES[softmax])).float().eval()
    tokens = tiny_lm.tokens(3, 17)
    with torch.no_grad():
        want = model.get_normalized_probs(model(tokens), log_probs=True)
        pack_weights(model, kind)
        got = model.get_normalized_probs(model(tokens), log_probs=True)
        state, steps = None, []
        for t in range(tokens.size(1)):
            log_probs, state = model.decoder.advance(tokens[:, t : t + 1], state)
            steps.append(log_probs)
    assert 0.0 < (got - want).abs().max() < ALLOWED[kind] * want.abs().max()
    torch.testing.assert_close(torch.stack(steps, dim=1), got, rtol=1e-4, atol=1e-4)
    maps = 5 * len(model.decoder.layers)  # value, gates, output; both of the feed-forward
    assert len(packed_parts(model)) == maps + (softmax != "adaptive")
    assert all(part.kind == kind for part in packed_parts(model))


@pytest.mark.parametrize("kind", ALLOWED)
def test_a_translator(kind):
    model = lively(tiny_mega.build()).float().eval()
    inputs = batch(), None, batch(seed=2)
    with torch.no_grad():
        want = model(*inputs)[0]
        pack_weights(model, kind)
        got = model(*inputs)[0]
    assert 0.0 < (got - want).abs().max() < ALLOWED[kind] * want.abs().max()
    assert not any(type(part) is torch.nn.Linear for part in model.encoder.layers.modules())


def command(text):
    return Namespace(
        generation=Namespace(beam=5, print_alignment=False), common_eval=Namespace(model_overrides=text)
    )


def test_commands_ask_by_the_overrides():
    model = lively(tiny_lm.build()).float().eval()
    model.prepare_for_inference_(command("{}"))
    assert packed_parts(model) == []
    model.prepare_for_inference_(command("{'decode_weights': 'int8', 'decoder_chunk_size': 3}"))
    assert len(packed_parts(model)) == 11


def test_what_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="'int4': choose from bf16, int8"):
        pack_weights(tiny_lm.build(), "int4")
    with pytest.raises(ValueError, match=r"--decode-weights int8: there are kernels for CPUs only"):
        pack_weights(tiny_lm.build().to("meta"), "int8")
