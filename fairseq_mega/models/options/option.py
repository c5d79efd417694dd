"""Options as rows of a table, from which fairseq's dataclasses and the fields of layers are derived."""

from dataclasses import field, fields, make_dataclass
from enum import Enum
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar

from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig

from fairseq_mega.compat.files.settings import Role, register_roles, setting_of

Configuration = TypeVar("Configuration")


def as_passed(value: Any, read: Mapping[str, Any]) -> Any:
    """Return the value of an option for a layer's field: a name in place of a member of an enumeration."""
    return str(value) if isinstance(value, Enum) else value


class Option(NamedTuple):
    """One option of a model.

    Attributes:
        name: name of the option; ``{side}`` in name and help means encoder or decoder.
        type: type for fairseq's parser: a type, Optional of a type, or a ChoiceEnum.
        default: default value.
        role: effect of the value on a model with trained weights; one role in all models.
        help: line in ``--help``; "" for an option that copies the task's.
        field: field of the layer's configuration that the option sets, if the configuration has it; default: the
            option's name without its side.
        convert: maps the option's value, and the fields set by earlier rows, to the field's value.
        alias: second flag, "" for none.
    """

    name: str
    type: Any
    default: Any
    role: Role
    help: str = ""
    field: Optional[str] = None
    convert: Callable[[Any, Mapping[str, Any]], Any] = as_passed
    alias: str = ""

    @property
    def target(self) -> str:
        """Field of a layer's configuration that the option sets, "" for none."""
        return self.name.replace("{side}_", "") if self.field is None else self.field


def of_side(side: str, table: Sequence[Option]) -> List[Option]:
    """Return the rows of a table for a side of a model, "encoder" or "decoder"."""
    return [option._replace(name=option.name.format(side=side), help=option.help.format(side=side)) for option in table]


def following(table: Sequence[Option]) -> List[Option]:
    """Return the rows for a decoder whose options default to the encoder's."""
    sided = [option for option in table if "{side}" in option.name]
    return of_side("decoder", [_open(option) if option.target else option for option in sided])


def _open(option: Option) -> Option:
    kind = option.type if option.default is None else Optional[option.type]
    return option._replace(type=kind, default=None, help="default: the encoder's")


def with_options(*table: Option, **changes: Mapping[str, Any]) -> Callable[[type], Type[FairseqDataclass]]:
    """Turn a class that has only a docstring into a dataclass of fairseq with these options.

    Args:
        table: the options, without sides.
        changes: differences from rows by names of options, such as ``width={"default": 8, "alias": "--width"}``.

    Raises:
        ValueError: if an option is in the table twice, is changed and not in the table, or has another role in another
            model.
    """
    names = [option.name for option in table]
    odd = sorted({name for name in names if names.count(name) > 1} | (changes.keys() - set(names)))
    if odd:
        raise ValueError(f"options that are in the table twice, or not at all: {', '.join(odd)}")
    register_roles({option.name: option.role for option in table})

    def make(described: type) -> Type[FairseqDataclass]:
        rows = [option._replace(**changes.get(option.name, {})) for option in table]
        made = make_dataclass(described.__name__, [_field(row) for row in rows], bases=(FairseqDataclass,))
        made.__module__, made.__doc__ = described.__module__, described.__doc__
        return made

    return make


def _field(option: Option) -> Tuple[str, Any, Any]:
    metadata = {"help": option.help, "argparse_alias": option.alias}
    given = {key: text for key, text in metadata.items() if text}
    return option.name, option.type, field(default=option.default, metadata=given)


def layer_fields(kind: Type[Configuration], table: Sequence[Option], cfg: DictConfig, side: str) -> Dict[str, Any]:
    """Return the fields of a layer's configuration that the options of a model set.

    Args:
        kind: dataclass of the layer's configuration; other fields are omitted.
        table: options of the layers, with sides.
        cfg: a completed configuration; missing options are omitted.
        side: "encoder" or "decoder"; unset options of a decoder are the encoder's.
    """
    known = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    found: Dict[str, Any] = {}
    for option in table:
        name = option.name.format(side=side)
        if option.target in known and name in cfg:
            found[option.target] = option.convert(setting_of(cfg, name), found)
    return found
