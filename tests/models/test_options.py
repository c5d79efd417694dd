"""The options of the models: rows of one table, and what is made of them."""

import ast
import inspect
from collections import Counter, defaultdict
from dataclasses import fields
from pathlib import Path
from typing import Any, DefaultDict, List, Set

from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_mega import models
from fairseq_mega.models.options.table import IMAGES, LAYERS
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig

OURS = [name for name, config in MODEL_DATACLASS_REGISTRY.items() if config.__module__.startswith("fairseq_mega.")]


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
