"""An error in a layer, which names a field, reaches the user with the flag."""

from argparse import Namespace
from dataclasses import fields

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_mega.models.mega import MegaConfig
from fairseq_mega.models.options.configurations import complete, layer_config, layer_flags, naming_flags
from fairseq_mega.modules.activation import get_activation
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.norm import build_norm
from fairseq_mega.modules.relative_bias import SimpleRelativeBias, build_relative_bias
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig
from tests.support.tiny_classifier import build

MODELS = {
    "llama_lm": [("decoder", "max_target_positions")],
    "mega": [("encoder", "max_source_positions"), ("decoder", "max_target_positions")],
    "mega_lm": [("decoder", "max_target_positions")],
    "mega_lra": [("encoder", "max_positions")],
    "mega_masked_lm": [("encoder", "max_positions")],
    "megalodon_lm": [("decoder", "max_target_positions")],
    "megalodon_lra": [("encoder", "max_positions")],
    "s4d_lra": [("encoder", "max_positions")],
    "transformer_lra": [("encoder", "max_positions")],
}
WITHOUT_OPTION = {("transformer_lra", "norm"), ("megalodon_lm", "ema_norm")}
WITHOUT_OPTION |= {(model, "stochastic_depth") for model in MODELS}  # of image classifiers alone
CONFIGS = {
    "llama_lm": LlamaLayerConfig,
    **dict.fromkeys(("megalodon_lm", "megalodon_lra"), MegalodonLayerConfig),
    "s4d_lra": S4dLayerConfig,
    "transformer_lra": TransformerLayerConfig,
}


decoding = naming_flags("decoder", "max_target_positions")


@naming_flags("encoder", "max_source_positions")
def fail(field, *, value):
    """A layer of an encoder."""
    raise FieldError(field, "{field} {value}: too many", value=value)


@pytest.mark.parametrize(
    ("field", "flag"), [("ema_dim", "--encoder-n-dim"), ("max_positions", "--max-source-positions")]
)
def test_a_field_becomes_a_flag(field, flag):
    with pytest.raises(ValueError, match=f"^{flag} 3: too many$") as info:
        fail(field, value=3)
    assert type(info.value) is ValueError and isinstance(info.value.__cause__, FieldError)
    assert fail.__name__ == "fail" and fail.__doc__ == "A layer of an encoder."


def test_other_errors_and_results_pass():
    with pytest.raises(KeyError, match="ema_dim"):
        decoding(vars(fail).__getitem__)("ema_dim")
    assert decoding(len)("four") == 4


@pytest.mark.parametrize("model", MODELS)
def test_flags_are_options_of_the_model(model):
    known = {field.name for field in fields(MODEL_DATACLASS_REGISTRY[model])}
    of_layers = {field.name for field in fields(CONFIGS.get(model, MegaLayerConfig))}
    for side, positions in MODELS[model]:
        flags = layer_flags(side, positions)
        assert flags["max_positions"] == "--" + positions.replace("_", "-")
        for field in of_layers & ({*flags} - {"cross_max_positions"}):
            assert flags[field][2:].replace("-", "_") in known or (model, field) in WITHOUT_OPTION


def test_a_model_compiles_into_one_graph():
    model = build(kind="image", encoder_chunk_size=8).eval()
    numbers = torch.randn(2, 24)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(numbers), model(numbers))


@pytest.mark.parametrize(("queries", "keys", "offset"), [(10, 3, 0), (1, 3, 9), (3, 10, 0)])
def test_simple_bias_names_what_is_too_long(queries, keys, offset):
    bias = decoding(SimpleRelativeBias(9).forward)
    with pytest.raises(ValueError, match="10 positions is longer than the 9 .*--max-target-positions"):
        bias(queries, keys, offset)


def test_unknown_kinds():
    with pytest.raises(ValueError, match="--rel-pos-bias"):
        decoding(build_relative_bias)("alibi", 4, 4, "max_positions")
    with pytest.raises(ValueError, match="--normalization-type"):
        decoding(build_norm)("groupnorm", 6)
    with pytest.raises(ValueError, match="--activation-fn"):
        decoding(get_activation)("swish2")


def test_choices_that_the_parser_would_refuse():
    cfg = OmegaConf.to_container(complete(MegaConfig, Namespace()))
    for option, value in (
        *(("attention_activation_fn", "sigmoid"), ("rel_pos_bias", "alibi")),
        *(("normalization_type", "groupnorm"), ("activation_fn", "swish2")),
    ):
        with pytest.raises(ValueError, match=f"^--{option.replace('_', '-')} {value}"):
            layer_config(OmegaConf.create({**cfg, option: value}), "encoder", "max_source_positions")
