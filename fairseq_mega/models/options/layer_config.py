"""Configurations of layers from the options of their models."""

from typing import Any, Sequence, Type, TypeVar

from omegaconf import DictConfig

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.errors import check_probability
from fairseq_mega.modules.images import patch_count
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig

from .flags import naming_flags
from .option import Option, layer_fields
from .table import EMA_NORM, LLAMA, MEGA, MEGALODON, S4D, TRANSFORMER

Configuration = TypeVar("Configuration")


def layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegaLayerConfig:
    """Return the checked shape of a MEGA layer.

    Args:
        cfg: a completed configuration with options of MEGA.
        side: "encoder" or "decoder", as the options begin; what a decoder leaves open is as in the encoder.
        positions: name of the option for the longest sequence.
        more: fields that no option sets, or that are not as it says.

    Raises:
        ValueError: where an option is out of range.
    """
    set_here = {"max_positions": cfg[positions], "bidirectional": side == "encoder", **more}
    return _checked(MegaLayerConfig, MEGA, cfg, side, positions, **set_here)


@naming_flags("encoder", "image_size")
def image_layer_config(cfg: DictConfig, layer: int) -> MegaLayerConfig:
    """Return the checked shape of the layer of a completed MegaImageConfig with this number, from 0.

    Raises:
        ValueError: where an option is out of range.
    """
    return layer_config(
        cfg,
        "encoder",
        "image_size",
        max_positions=patch_count(cfg.image_size, cfg.patch_size),
        shift=True,
        attention_function="laplace",
        normalize_before=True,
        stochastic_depth=stochastic_depth(cfg, layer),
    )


@naming_flags("encoder", "image_size")
def stochastic_depth(cfg: DictConfig, layer: int) -> float:
    """Return the probability with which an image skips a layer, from 0 in layer 0 up to that of the last one.

    Raises:
        ValueError: if that is no probability.
    """
    check_probability("stochastic_depth", cfg.drop_path)
    return float(cfg.drop_path * layer / max(cfg.encoder_layers - 1, 1))


def megalodon_layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegalodonLayerConfig:
    """Return the checked shape of a MEGALODON layer, whose attention is full where there is no option for a chunk.

    Arguments and errors are those of :func:`layer_config`.
    """
    table = (*MEGALODON, EMA_NORM)
    return _checked(MegalodonLayerConfig, table, cfg, side, positions, bidirectional=side == "encoder", **more)


def transformer_layer_config(cfg: DictConfig) -> TransformerLayerConfig:
    """Return the checked shape of a layer of a completed TransformerClassifierConfig; errors: :func:`layer_config`."""
    return _checked(TransformerLayerConfig, TRANSFORMER, cfg, "encoder", "max_positions")


def s4d_layer_config(cfg: DictConfig) -> S4dLayerConfig:
    """Return the checked shape of a layer of a completed S4dClassifierConfig; errors: :func:`layer_config`."""
    return _checked(S4dLayerConfig, S4D, cfg, "encoder", "max_positions")


def llama_layer_config(cfg: DictConfig) -> LlamaLayerConfig:
    """Return the checked shape of a layer of a completed LlamaLanguageModelConfig; errors: :func:`layer_config`."""
    return _checked(LlamaLayerConfig, LLAMA, cfg, "decoder", "max_target_positions")


def _checked(
    kind: Type[Configuration], table: Sequence[Option], cfg: DictConfig, side: str, positions: str, **more: Any
) -> Configuration:
    @naming_flags(side, positions)
    def build() -> Configuration:
        return kind(**{**layer_fields(kind, table, cfg, side), **more})

    return build()
