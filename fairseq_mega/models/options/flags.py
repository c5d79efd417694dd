"""The one place that turns options, and the fields of a layer, into the flags of the command line."""

import functools
from typing import Any, Callable, Dict, TypeVar, cast

from fairseq_mega.modules.errors import FieldError

Function = TypeVar("Function", bound=Callable[..., Any])
# Options that set the fields of a layer: with the name of a side in front, and without.
OF_A_SIDE = {
    "embed_dim": "embed_dim",
    "hidden_dim": "hidden_dim",
    "z_dim": "z_dim",
    "ema_dim": "n_dim",
    "ffn_dim": "ffn_embed_dim",
    "heads": "attention_heads",
    "chunk_size": "chunk_size",
}
OF_BOTH_SIDES = {
    "attention_function": "attention_activation_fn",
    "activation": "activation_fn",
    "relative_bias": "rel_pos_bias",
    "norm": "normalization_type",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "hidden_dropout": "hidden_dropout",
    "activation_dropout": "activation_dropout",
    "norm_groups": "norm_num_groups",
    "rope_base": "rope_base",
    "residual_hops": "residual_hops",
    "attention_drops": "attention_drops",
    "ema_norm": "ema_norm",
    "init_mode": "init_mode",
    "initialization": "state_space_init",
    "least_step": "least_step",
    "largest_step": "largest_step",
    "rate": "state_space_rate",
    "step_rate": "state_space_step_rate",
    "stochastic_depth": "drop_path",
    "image_size": "image_size",
    "patch_size": "patch_size",
}
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
        **{field: flag(f"{side}_{option}") for field, option in OF_A_SIDE.items()},
        **{field: flag(option) for field, option in OF_BOTH_SIDES.items()},
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
