"""Decoding with packed matrices: close to the model as trained, on every way to ask for it."""

import ast
import copy
from argparse import Namespace
from typing import Any, Dict

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.models import BaseFairseqModel
from fairseq.modules.adaptive_softmax import TiedLinear
from torch import nn

from fairseq_mega.compat.features.decode_weights import requested_format
from fairseq_mega.models.decode_weights import pack_weights
from fairseq_mega.modules.packed_linear import PackedLinear
from fairseq_mega.ops.packed_linear import PackedMatrix, unpack
from tests.support import tiny_lm, tiny_mega
from tests.support.tiny_mega import batch, lively

ALLOWED = {"bf16": 0.02, "int8": 0.04}  # of the largest logit; rounding of 2^-9, and of 1 / 254 of a row's largest
SOFTMAXES: Dict[str, Dict[str, Any]] = {
    "shared": {},
    "untied": {"share_decoder_input_output_embed": False},
    "adaptive": tiny_lm.ADAPTIVE,
    "adaptive untied": {**tiny_lm.ADAPTIVE, "tie_adaptive_weights": False, "tie_adaptive_proj": False},
}


def packed_parts(model):
    return [part for part in model.modules() if isinstance(part, PackedLinear)]


def unpacked(model):
    """The same model with plain linear maps of the rounded matrices."""
    model = copy.deepcopy(model)
    for parent in list(model.modules()):
        for name, part in list(parent.named_children()):
            if isinstance(part, PackedLinear):
                matrix = unpack(PackedMatrix(part.data, part.scale))
                plain = nn.Linear(matrix.size(1), matrix.size(0), bias=part.bias is not None)
                plain.weight.data = matrix
                if part.bias is not None:
                    plain.bias.data = part.bias
                setattr(parent, name, plain)
    return model


@pytest.mark.parametrize("kind", ALLOWED)
@pytest.mark.parametrize("softmax", SOFTMAXES)
def test_a_language_model(kind, softmax):
    model = lively(tiny_lm.build(**SOFTMAXES[softmax])).float().eval()
    tokens = tiny_lm.tokens(3, 17)
    with torch.no_grad():
        want = model.get_normalized_probs(model(tokens), log_probs=True)
        pack_weights(model, kind)
        rounded = unpacked(model)
        same = rounded.get_normalized_probs(rounded(tokens), log_probs=True)
        got = model.get_normalized_probs(model(tokens), log_probs=True)
        state, steps = None, []
        for t in range(tokens.size(1)):
            log_probs, state = model.decoder.advance(tokens[:, t : t + 1], state)
            steps.append(log_probs)
    assert 0.0 < (got - want).abs().max() < ALLOWED[kind] * want.abs().max()
    torch.testing.assert_close(got, same, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.stack(steps, dim=1), got, rtol=1e-4, atol=1e-4)
    layers = 5 * len(model.decoder.layers)  # value, gates, output; both of the feed-forward
    tables = {"shared": 1, "untied": 1, "adaptive": 3 + 6, "adaptive untied": 3 + 5}[softmax]
    assert len(packed_parts(model)) == layers + tables
    assert all(part.kind == kind for part in packed_parts(model))
    left = [part for part in model.modules() if isinstance(part, (nn.Linear, TiedLinear))]
    assert left == ([model.decoder.output_projection] if softmax == "untied" else [])


@pytest.mark.parametrize("softmax", ["shared", "untied"])
def test_the_output_table_is_read_packed(softmax):
    model = lively(tiny_lm.build(**SOFTMAXES[softmax])).float().eval()
    features = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(1))
    matrix = model.decoder.output_matrix
    pack_weights(model, "int8")
    packed = packed_parts(model)[-1]
    with torch.no_grad():
        got = model.decoder.output_layer(features)
        torch.testing.assert_close(got, features @ unpack(PackedMatrix(packed.data, packed.scale)).T)
        assert not torch.allclose(got, features @ matrix.T, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", ALLOWED)
def test_a_translator(kind):
    model = lively(tiny_mega.build()).float().eval()
    inputs = batch(), None, batch(seed=2)
    with torch.no_grad():
        want = model(*inputs)[0]
        pack_weights(model, kind)
        got, rounded = model(*inputs)[0], unpacked(model)
        torch.testing.assert_close(got, rounded(*inputs)[0], rtol=1e-5, atol=1e-5)
    assert 0.0 < (got - want).abs().max() < ALLOWED[kind] * want.abs().max()
    assert not any(type(part) is nn.Linear for part in model.encoder.layers.modules())


def command(text):
    return Namespace(generation=Namespace(beam=5, print_alignment=False), common_eval=Namespace(model_overrides=text))


def test_commands_ask_by_the_overrides():
    model = lively(tiny_lm.build()).float().eval()
    model.prepare_for_inference_(command("{}"))
    model.prepare_for_inference_(command("dict(decoder_chunk_size=3)"))  # eval-lm takes any expression
    model.prepare_for_inference_(Namespace(generation=Namespace(beam=5, print_alignment=False)))
    assert packed_parts(model) == []
    model.prepare_for_inference_(command("{'decode_weights': 'int8', 'decoder_chunk_size': 3}"))
    assert len(packed_parts(model)) == 11


@pytest.mark.parametrize("name", ["generation", "interactive_generation", "eval_lm"])
def test_the_option_reaches_the_configuration(name):
    command_line = ["data-bin", "--path", "checkpoint.pt", "--model-overrides", "{'dropout': 0.5}"]
    for flags, kind in (([], None), (["--decode-weights", "int8"], "int8")):
        parser = getattr(options, f"get_{name}_parser")()  # parsing adds to it
        cfg = convert_namespace_to_omegaconf(options.parse_args_and_arch(parser, [*command_line, *flags]))
        assert requested_format(cfg) == kind
        assert ast.literal_eval(cfg.common_eval.model_overrides)["dropout"] == 0.5


def test_what_cannot_be_packed_is_refused():
    damaged = tiny_lm.build()
    damaged.decoder.layers[1].feed_forward.fc1.weight.data[0, 0] = torch.nan
    for model, kind in ((tiny_lm.build(), "int4"), (damaged, "bf16"), (tiny_lm.build().to("meta"), "int8")):
        with pytest.raises(ValueError, match=f"--decode-weights {kind}"):
            pack_weights(model, kind)
    with pytest.raises(ValueError, match="--decode-weights bf16"):
        BaseFairseqModel().prepare_for_inference_(command("{'decode_weights': 'bf16'}"))
