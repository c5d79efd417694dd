"""The one place that turns the fields of a layer into the flags of the command line."""

import functools
from typing import Any, Callable, Dict, TypeVar, cast

from fairseq_mega.modules.errors import FieldError

Function = TypeVar("Function", bound=Callable[..., Any])
OF_A_SIDE = {
    "embed_dim": "embed-dim",
    "hidden_dim": "hidden-dim",
    "z_dim": "z-dim",
    "ema_dim": "n-dim",
    "ffn_dim": "ffn-embed-dim",
    "heads": "attention-heads",
    "chunk_size": "chunk-size",
}
OF_ALL_LAYERS = {
    "cross_max_positions": "--max-source-positions / --max-target-positions",
    "attention_function": "--attention-activation-fn",
    "activation": "--activation-fn",
    "relative_bias": "--rel-pos-bias",
    "norm": "--normalization-type",
    "dropout": "--dropout",
    "attention_dropout": "--attention-dropout",
    "hidden_dropout": "--hidden-dropout",
    "activation_dropout": "--activation-dropout",
}


def layer_flags(side: str, positions: str) -> Dict[str, str]:
    """Flags of the fields of a layer.

    Args:
        side: "encoder" or "decoder", with which the flags of that side begin.
        positions: option for the longest sequence, such as max_source_positions.
    """
    flags = {field: f"--{side}-{flag}" for field, flag in OF_A_SIDE.items()}
    return {**flags, **OF_ALL_LAYERS, "max_positions": "--" + positions.replace("_", "-")}


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
