"""The options of the models: rows of one table, and what is made of them."""

import ast
import inspect
from collections import Counter, defaultdict
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, DefaultDict, Dict, List, Optional, Set

import pytest
from fairseq.dataclass import ChoiceEnum
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from fairseq_mega import models
from fairseq_mega.models.options.option import Option, Role, following, layer_fields, of_side, with_options
from fairseq_mega.models.options.table import IMAGES, LAYERS
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig

OURS = [name for name, config in MODEL_DATACLASS_REGISTRY.items() if config.__module__.startswith("fairseq_mega.")]
SHAPE = (
    Option("{side}_width", int, 8, Role.TENSORS, "width", "embed_dim"),
    Option(
        "{side}_inner",
        Optional[int],
        None,
        Role.TENSORS,
        "default: --{side}-width",
        "ffn_dim",
        lambda inner, read: inner or 3,
    ),
    Option("{side}_depth", int, 2, Role.TENSORS, "depth"),
    Option("kind", ChoiceEnum(["a", "b"]), "a", Role.OUTPUTS, "kind", "heads"),
)


@with_options(*of_side("encoder", SHAPE), kind={"default": "b", "alias": "--sort"})
class Own:
    """Options of a model."""


@with_options(*of_side("encoder", SHAPE), *following(SHAPE))
class Both:
    """Options of an encoder and of a decoder that follows it."""


def test_a_class_of_options() -> None:
    options: Any = Own
    own = {option.name: option for option in fields(options) if option.name != "_name"}
    assert [*own] == ["encoder_width", "encoder_inner", "encoder_depth", "kind"]
    assert [option.default for option in own.values()] == [8, None, 2, "b"]
    assert dict(own["encoder_inner"].metadata) == {"help": "default: --encoder-width"}
    assert dict(own["kind"].metadata) == {"help": "kind", "argparse_alias": "--sort"}
    assert (Own.__name__, Own.__module__, Own.__doc__) == ("Own", __name__, "Options of a model.")


def test_a_decoder_that_follows_leaves_its_shape_open() -> None:
    rows = following(SHAPE)
    assert [row.name for row in rows] == ["decoder_width", "decoder_inner", "decoder_depth"]
    assert [row.type for row in rows] == [Optional[int], Optional[int], int]
    assert [row.default for row in rows] == [None, None, 2]


@pytest.mark.parametrize(("table", "changes", "odd"), [((), {"height": {}}, "height"), (SHAPE[3:] * 2, {}, "kind")])
def test_rows_that_do_not_fit(table: Any, changes: Dict[str, Any], odd: str) -> None:
    with pytest.raises(ValueError, match=f"twice, or not at all: {odd}"):
        with_options(*table, **changes)


def test_fields_of_a_layer() -> None:
    """Names in place of members of an enumeration; what the model or the layer lacks is omitted."""
    cfg = OmegaConf.structured(Both)
    cfg.kind, cfg.decoder_inner = "b", 5
    assert isinstance(cfg.kind, Enum)
    encoder = layer_fields(
        LlamaLayerConfig, (*SHAPE, Option("rope", float, 1.0, Role.OUTPUTS, "", "rope_base")), cfg, "encoder"
    )
    assert encoder == {"embed_dim": 8, "ffn_dim": 3, "heads": "b"} and type(encoder["heads"]) is str
    assert layer_fields(LlamaLayerConfig, SHAPE, cfg, "decoder") == {"embed_dim": 8, "ffn_dim": 5, "heads": "b"}


def test_each_option_is_declared_once() -> None:
    declared: List[str] = []
    for path in Path(inspect.getfile(models)).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "Option":
                declared.append(ast.literal_eval(node.args[0]))
    assert len(declared) > 50, len(declared)
    assert {name: count for name, count in Counter(declared).items() if count > 1} == {}


def test_a_field_of_a_layer_has_one_option() -> None:
    """Every table has one option for a field, so that an error about the field can name the option."""
    found: DefaultDict[str, Set[str]] = defaultdict(set)
    for option in (*LAYERS, *IMAGES):
        found[option.field].add(option.name)
    del found[""]
    kinds: Any = (MegaLayerConfig, MegalodonLayerConfig, LlamaLayerConfig, TransformerLayerConfig, S4dLayerConfig)
    of_layers = {field.name for kind in kinds for field in fields(kind)}
    assert found.keys() - of_layers == {"image_size", "patch_size"}  # of what is before the layers
    assert {field: names for field, names in found.items() if len(names) > 1} == {}


def test_switches_are_off_by_default() -> None:
    """fairseq's flag of an option that is on would switch it off: --normalize-before, say, would be post-norm."""
    switches = [
        (model, option) for model in OURS for option in fields(MODEL_DATACLASS_REGISTRY[model]) if option.type is bool
    ]
    without = {"vit_image"}  # whose layers are timm's
    assert {model for model, _ in switches} == {*OURS} - without >= {"s4d_lra", "megalodon_lm"}
    assert [(model, option.name) for model, option in switches if option.default is not False] == []
