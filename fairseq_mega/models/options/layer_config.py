"""Build configurations of layers from the options of their models."""

from typing import Any, Sequence, Type, TypeVar

from omegaconf import DictConfig

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig

from .flags import naming_flags
from .option import Option, layer_fields
from .table import EMA_NORM, MEGA, MEGALODON

Configuration = TypeVar("Configuration")


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
