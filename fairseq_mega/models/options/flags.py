"""Flags of the command line for options, and for the fields of a layer that they set."""

import functools
from typing import Any, Callable, Dict, TypeVar, cast

from fairseq_mega.modules.errors import FieldError

from .table import IMAGES, LAYERS

Function = TypeVar("Function", bound=Callable[..., Any])
PRECISIONS = {"float16": "--fp16 or --amp", "bfloat16": "--bf16"}


def flag(option: str) -> str:
    """The flag of an option, such as encoder_layers."""
    return "--" + option.replace("_", "-")


def layer_flags(side: str, positions: str) -> Dict[str, str]:
    """Flags of the fields of a layer.

    Args:
        side: "encoder" or "decoder", with which the flags of that side begin.
        positions: option for the longest sequence, such as max_source_positions.
    """
    return {
        **{option.field: flag(option.name.format(side=side)) for option in (*LAYERS, *IMAGES) if option.field},
        **PRECISIONS,
        "max_positions": flag(positions),
        "cross_max_positions": "--max-source-positions / --max-target-positions",
    }


def naming_flags(side: str, positions: str) -> Callable[[Function], Function]:
    """Decorate what builds or runs layers: an error about a field of theirs names the flag that the user typed.

    Arguments are those of :func:`layer_flags`. A FieldError becomes a ValueError.
    """
    flags = layer_flags(side, positions)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            try:  # and no context manager: torch.compile could not trace it
                return function(*args, **kwargs)
            except FieldError as error:
                raise ValueError(error.under(flags)) from error

        return cast(Function, named)

    return decorate
