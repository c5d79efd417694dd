"""Options that a model shares with others, but with another default, alias or help."""

import sys
from dataclasses import Field, field
from typing import Any, Callable, Dict, Mapping, Type, TypeVar

NOTHING: Mapping[str, Any] = {}
Options = TypeVar("Options")


def revised(
    *,
    defaults: Mapping[str, Any] = NOTHING,
    aliases: Mapping[str, str] = NOTHING,
    help: Mapping[str, str] = NOTHING,
) -> Callable[[Type[Options]], Type[Options]]:
    """Decorate a class that becomes a dataclass next, and inherits options that differ here.

    Args:
        defaults: names of options to values instead of the inherited ones.
        aliases: names to second flags on the command line.
        help: names to descriptions instead of the inherited ones.

    Raises:
        KeyError: if there is no such option to be revised.
    """

    def revise(options: Type[Options]) -> Type[Options]:
        inherited: Dict[str, Field] = {}
        for base in reversed(options.__mro__[1:]):  # as the dataclass will look them up
            inherited.update(getattr(base, "__dataclass_fields__", {}))
        types = {}
        for name in {**defaults, **aliases, **help}:
            metadata = dict(inherited[name].metadata)
            if name in aliases:
                metadata["argparse_alias"] = aliases[name]
            if name in help:
                metadata["help"] = help[name]
            setattr(options, name, field(default=defaults.get(name, inherited[name].default), metadata=metadata))
            types[name] = inherited[name].type
        # Before Python 3.10 the attribute could be a base's.
        own = options.__annotations__ if sys.version_info >= (3, 10) else vars(options).get("__annotations__", {})
        options.__annotations__ = {**own, **types}
        return options

    return revise
