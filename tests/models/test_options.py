"""The options of the models: rows of one table, and what is made of them."""

from dataclasses import fields
from typing import Any

from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_mega.models.options.table import IMAGES, LAYERS
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig

OURS = [name for name, config in MODEL_DATACLASS_REGISTRY.items() if config.__module__.startswith("fairseq_mega.")]


def test_a_field_of_a_layer_has_one_option() -> None:
    """Every table has one option for a field, so that an error about the field can name the option."""
    kinds: Any = (MegaLayerConfig, MegalodonLayerConfig, LlamaLayerConfig, TransformerLayerConfig, S4dLayerConfig)
    of_layers = {field.name for kind in kinds for field in fields(kind)}
    pairs = {(option.target, option.name) for option in (*LAYERS, *IMAGES) if option.target in of_layers}
    assert len(pairs) == len({field for field, _ in pairs}) > 30


def test_switches_are_off_by_default() -> None:
    """fairseq's flag of an option that is on would switch it off: --normalize-before, say, would be post-norm."""
    switches = [
        (model, option) for model in OURS for option in fields(MODEL_DATACLASS_REGISTRY[model]) if option.type is bool
    ]
    without = {"vit_image"}  # whose layers are timm's
    assert {model for model, _ in switches} == {*OURS} - without >= {"s4d_lra", "megalodon_lm"}
    assert [(model, option.name) for model, option in switches if option.default is not False] == []
