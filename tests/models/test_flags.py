"""An error in a layer, which names a field, reaches the user with the flag."""

from dataclasses import fields

import pytest
import torch
from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_mega.models.options.configurations import layer_flags, naming_flags
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
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
