"""From options to configurations: fill them, check them, and name the user's flags in errors."""

import functools
from argparse import Namespace
from typing import Any, Callable, Dict, Mapping, Sequence, Type, TypeVar, Union, cast

from fairseq.dataclass import FairseqDataclass
from omegaconf import DictConfig, OmegaConf

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig

from .option import Option, layer_fields
from .table import EMA_NORM, IMAGES, LAYERS, MEGA, MEGALODON

Function = TypeVar("Function", bound=Callable[..., Any])
Configuration = TypeVar("Configuration")
PRECISIONS = {"float16": "--fp16 or --amp", "bfloat16": "--bf16"}
DEFAULT_MAX_POSITIONS = 1024


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
        **{option.target: flag(option.name.format(side=side)) for option in (*LAYERS, *IMAGES)},
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


def complete(dataclass_type: Type[FairseqDataclass], cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill a model configuration of any origin with the defaults of its dataclass.

    fairseq passes a model its dataclass, the options of an architecture preset, or the options of an older checkpoint;
    the result has one form for all three.
    """
    base = OmegaConf.structured(dataclass_type)
    given = vars(cfg) if isinstance(cfg, Namespace) else {key: cfg[key] for key in cfg}
    known = {key: value for key, value in given.items() if key in base and value is not None}
    for key in ("max_source_positions", "max_target_positions"):  # the task's, missing from old checkpoints
        if key in base:
            known.setdefault(key, DEFAULT_MAX_POSITIONS)
    return OmegaConf.merge(base, known)


def check_at_least(cfg: DictConfig, bounds: Mapping[str, int]) -> None:
    """Raise a ValueError for the first option whose value is below its bound."""
    for option, least in bounds.items():
        if cfg[option] < least:
            raise ValueError(f"{flag(option)} {cfg[option]}: must be at least {least}")


def check_embedding_norm(cfg: DictConfig) -> None:
    """Raise a ValueError if a norm on the embeddings would be followed by another norm."""
    if cfg.normalize_embedding and cfg.normalize_before:
        raise ValueError(
            "--normalize-embedding requires a post-norm model: omit --normalize-before or --normalize-embedding"
        )


def checked_config(
    kind: Type[Configuration], table: Sequence[Option], cfg: DictConfig, side: str, positions: str, **more: Any
) -> Configuration:
    """Return the checked configuration of a layer.

    Args:
        kind: dataclass of the configuration.
        table: options of these layers, with sides.
        cfg: a completed configuration with options of the table.
        side: "encoder" or "decoder", the beginning of the options; unset options of a decoder are the encoder's.
        positions: name of the option for the longest sequence.
        more: fields that no option sets, or whose values override the option.

    Raises:
        ValueError: if an option is out of range.
    """

    @naming_flags(side, positions)
    def build() -> Configuration:
        return kind(**{**layer_fields(kind, table, cfg, side), **more})

    return build()


def layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegaLayerConfig:
    """Return the checked configuration of a MEGA layer; arguments and errors as :func:`checked_config`."""
    set_here = {"max_positions": cfg[positions], "bidirectional": side == "encoder", **more}
    return checked_config(MegaLayerConfig, MEGA, cfg, side, positions, **set_here)


def megalodon_layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegalodonLayerConfig:
    """Return the checked configuration of a MEGALODON layer; arguments and errors as :func:`checked_config`.

    A model without an option for the chunk has full attention.
    """
    table = (*MEGALODON, EMA_NORM)
    return checked_config(MegalodonLayerConfig, table, cfg, side, positions, bidirectional=side == "encoder", **more)
