"""The options of the models: shared, and revised where a model's differ."""

from dataclasses import dataclass, field, fields

import pytest

from fairseq_mega.models.options.revised import revised


@dataclass
class Shared:
    width: int = field(default=8, metadata={"help": "width"})
    depth: int = field(default=2, metadata={"help": "depth"})


@revised(defaults={"width": 16}, aliases={"depth": "--layers"}, help={"depth": "layers"})
@dataclass
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
        revised(defaults={"height": 1})(Shared)
