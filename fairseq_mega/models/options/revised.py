"""Options that a model shares with others, but with another default, alias or help."""

from dataclasses import field, fields, make_dataclass
from typing import Any, Callable, Mapping, Type, TypeVar

NOTHING: Mapping[str, Any] = {}
Options = TypeVar("Options")


def revised(
    *,
    defaults: Mapping[str, Any] = NOTHING,
    aliases: Mapping[str, str] = NOTHING,
    help: Mapping[str, str] = NOTHING,
) -> Callable[[Type[Options]], Type[Options]]:
    """Decorate a dataclass of options whose inherited ones differ; each argument goes from names to what they get.

    Args:
        defaults: values instead of the inherited ones.
        aliases: second flags on the command line.
        help: descriptions instead of the inherited ones.

    Raises:
        KeyError: if there is no such option to be revised.
    """

    def revise(options: Type[Options]) -> Type[Options]:
        known = {option.name: option for option in fields(options)}  # type: ignore[arg-type]
        changes = []
        for name in {**defaults, **aliases, **help}:
            metadata = dict(known[name].metadata)
            if name in aliases:
                metadata["argparse_alias"] = aliases[name]
            if name in help:
                metadata["help"] = help[name]
            default = defaults.get(name, known[name].default)
            changes.append((name, known[name].type, field(default=default, metadata=metadata)))
        made = make_dataclass(options.__name__, changes, bases=(options,))
        for attribute in ("__module__", "__qualname__", "__doc__"):
            setattr(made, attribute, getattr(options, attribute))
        return made

    return revise
