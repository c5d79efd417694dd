"""The options of the models: declared once, revised where a model's differ."""

import ast
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Dict, List, Tuple

import pytest
from fairseq.models import MODEL_DATACLASS_REGISTRY

from fairseq_mega.models import options
from fairseq_mega.models.options.revised import revised

FOLDER = Path(options.__file__).parent
OURS = [name for name, config in MODEL_DATACLASS_REGISTRY.items() if config.__module__.startswith("fairseq_mega.")]


@dataclass
class Shared:
    width: int = field(default=8, metadata={"help": "width"})
    depth: int = field(default=2, metadata={"help": "depth"})


@dataclass
@revised(defaults={"width": 16}, aliases={"depth": "--layers"}, help={"depth": "layers"})
class Own(Shared):
    """Of a model."""

    speed: int = 1


def test_revised_options():
    own = {option.name: option for option in fields(Own)}
    assert [*own] == ["width", "depth", "speed"] and Own() == Own(16, 2, 1)
    assert dict(own["width"].metadata) == {"help": "width"} and own["width"].type is int
    assert dict(own["depth"].metadata) == {"help": "layers", "argparse_alias": "--layers"}
    assert (Own.__name__, Own.__module__, Own.__doc__) == ("Own", __name__, "Of a model.")


def test_the_shared_options_stay():
    assert Shared() == Shared(8, 2)
    assert [dict(option.metadata) for option in fields(Shared)] == [{"help": "width"}, {"help": "depth"}]


def test_only_inherited_options_are_revised():
    with pytest.raises(KeyError, match="height"):
        revised(defaults={"height": 1})(Own)


def test_each_option_is_declared_once():
    """Of each type: a decoder beside an encoder may leave its shape open, one that stands alone may not."""
    declared: Dict[Tuple[str, str], List[str]] = {}
    for path in sorted(FOLDER.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign):
                        option = ast.unparse(line.target), ast.unparse(line.annotation)
                        declared.setdefault(option, []).append(node.name)
    assert len(declared) > 50, len(declared)
    assert {option: classes for option, classes in declared.items() if len(classes) > 1} == {}


def test_switches_are_off_by_default():
    """fairseq's flag of an option that is on would switch it off: --normalize-before, say, would be post-norm."""
    switches = [
        (model, option) for model in OURS for option in fields(MODEL_DATACLASS_REGISTRY[model]) if option.type is bool
    ]
    without = {"vit_image"}  # whose layers are timm's
    assert {model for model, _ in switches} == {*OURS} - without >= {"s4d_lra", "megalodon_lm"}
    assert [(model, option.name) for model, option in switches if option.default is not False] == []
