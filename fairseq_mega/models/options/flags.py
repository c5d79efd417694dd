"""Flags of the command line for options, and for the fields of a layer that they set."""

import functools
from typing import Any, Callable, Dict, TypeVar, cast

from fairseq_mega.modules.errors import FieldError

from .table import IMAGES, LAYERS

Function = TypeVar("Function", bound=Callable[..., Any])
PRECISIONS = {"float16": "--fp16 or --amp", "bfloat16": "--bf16"}


def flag(option: str) -> str:
    """Return the flag of an option, such as encoder_layers."""
    return "--" + option.replace("_", "-")


def layer_flags(side: str, positions: str) -> Dict[str, str]:
    """Return the flags of the fields of a layer.

    Args:
        side: "encoder" or "decoder", the beginning of the side's flags.
        positions: option for the longest sequence, such as max_source_positions.
    """
    return {
        **{option.field: flag(option.name.format(side=side)) for option in (*LAYERS, *IMAGES) if option.field},
        **PRECISIONS,
        "max_positions": flag(positions),
        "cross_max_positions": "--max-source-positions / --max-target-positions",
    }


def naming_flags(side: str, positions: str) -> Callable[[Function], Function]:
    """Decorate a function that builds or runs layers: errors about fields of layers name the user's flags.

    Arguments are those of :func:`layer_flags`. A FieldError becomes a ValueError.
    """
    flags = layer_flags(side, positions)

    def decorate(function: Function) -> Function:
        @functools.wraps(function)
        def named(*args: Any, **kwargs: Any) -> Any:
            try:  # torch.compile cannot trace a context manager here
                return function(*args, **kwargs)
            except FieldError as error:
                raise ValueError(error.under(flags)) from error

        return cast(Function, named)

    return decorate
