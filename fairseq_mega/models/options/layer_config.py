"""From a model's options to the configurations of its layers."""

from typing import Any

from omegaconf import DictConfig

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.errors import check_probability
from fairseq_mega.modules.images import patch_count
from fairseq_mega.modules.llama_layer import LlamaLayerConfig
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.s4d_layer import S4dLayerConfig
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig

from .flags import naming_flags


def layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegaLayerConfig:
    """Shape of one layer of a completed configuration, checked.

    Args:
        cfg: of any model with LayerOptions and the options of a side.
        side: "encoder" or "decoder", as the options begin; what a decoder leaves open is as in the encoder.
        positions: name of the option for the longest sequence.
        more: further arguments of MegaLayerConfig.

    Raises:
        ValueError: where an option is out of range.
    """

    def option(name: str) -> Any:
        value = cfg[f"{side}_{name}"]
        return cfg[f"encoder_{name}"] if value is None and f"encoder_{name}" in cfg else value

    ffn_dim = option("ffn_embed_dim")

    @naming_flags(side, positions)
    def build() -> MegaLayerConfig:
        return MegaLayerConfig(
            embed_dim=option("embed_dim"),
            hidden_dim=option("hidden_dim"),
            z_dim=option("z_dim"),
            ema_dim=option("n_dim"),
            ffn_dim=option("hidden_dim") if ffn_dim is None else ffn_dim,
            chunk_size=option("chunk_size"),
            max_positions=cfg[positions],
            bidirectional=side == "encoder",
            truncation=cfg.truncation_length if cfg.truncation_length > 0 else None,
            attention_function=str(cfg.attention_activation_fn),
            activation=str(cfg.activation_fn),
            relative_bias=str(cfg.rel_pos_bias),
            norm=str(cfg.normalization_type),
            normalize_before=cfg.normalize_before,
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            hidden_dropout=cfg.hidden_dropout,
            activation_dropout=cfg.activation_dropout,
            feature_dropout=cfg.feature_dropout,
            checkpoint_activations=cfg.checkpoint_activations,
            **more,
        )

    return build()


@naming_flags("encoder", "image_size")
def image_layer_config(cfg: DictConfig, layer: int) -> MegaLayerConfig:
    """Shape of one layer of a completed MegaImageConfig, checked.

    Args:
        cfg: the configuration.
        layer: number of the layer from 0.

    Raises:
        ValueError: where an option is out of range.
    """
    ffn_dim = cfg.encoder_ffn_embed_dim
    return MegaLayerConfig(
        embed_dim=cfg.encoder_embed_dim,
        hidden_dim=cfg.encoder_hidden_dim,
        z_dim=cfg.encoder_z_dim,
        ema_dim=cfg.encoder_n_dim,
        ffn_dim=cfg.encoder_hidden_dim if ffn_dim is None else ffn_dim,
        max_positions=patch_count(cfg.image_size, cfg.patch_size),
        bidirectional=True,
        shift=True,
        attention_function="laplace",
        norm=str(cfg.normalization_type),
        normalize_before=True,
        dropout=cfg.dropout,
        stochastic_depth=stochastic_depth(cfg, layer),
        checkpoint_activations=cfg.checkpoint_activations,
    )


@naming_flags("encoder", "image_size")
def stochastic_depth(cfg: DictConfig, layer: int) -> float:
    """The probability with which an image skips a layer, counted from 0: it rises from 0 to that of the last one.

    Raises:
        ValueError: if that is no probability.
    """
    check_probability("stochastic_depth", cfg.drop_path)
    return float(cfg.drop_path * layer / max(cfg.encoder_layers - 1, 1))


@naming_flags("encoder", "max_positions")
def transformer_layer_config(cfg: DictConfig) -> TransformerLayerConfig:
    """Shape of one layer of a completed TransformerClassifierConfig, checked.

    Raises:
        ValueError: where an option is out of range.
    """
    return TransformerLayerConfig(
        embed_dim=cfg.encoder_embed_dim,
        heads=cfg.encoder_attention_heads,
        ffn_dim=cfg.encoder_ffn_embed_dim,
        activation=str(cfg.activation_fn),
        normalize_before=cfg.normalize_before,
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout,
    )


@naming_flags("encoder", "max_positions")
def s4d_layer_config(cfg: DictConfig) -> S4dLayerConfig:
    """Shape of one layer of a completed S4dClassifierConfig, checked.

    Raises:
        ValueError: where an option is out of range.
    """
    return S4dLayerConfig(
        embed_dim=cfg.encoder_embed_dim,
        ema_dim=cfg.encoder_n_dim,
        initialization=str(cfg.state_space_init),
        least_step=cfg.least_step,
        largest_step=cfg.largest_step,
        rate=cfg.state_space_rate,
        step_rate=cfg.state_space_step_rate,
        norm=str(cfg.normalization_type),
        normalize_before=cfg.normalize_before,
        dropout=cfg.dropout,
    )


def megalodon_layer_config(cfg: DictConfig, side: str, positions: str, **more: Any) -> MegalodonLayerConfig:
    """Shape of one layer of a completed configuration with MegalodonLayerOptions, checked; see :func:`layer_config`.

    Models of images have no option for a chunk: their attention is full.

    Raises:
        ValueError: where an option is out of range.
    """
    ffn_dim = cfg[f"{side}_ffn_embed_dim"]

    @naming_flags(side, positions)
    def build() -> MegalodonLayerConfig:
        return MegalodonLayerConfig(
            embed_dim=cfg[f"{side}_embed_dim"],
            hidden_dim=cfg[f"{side}_hidden_dim"],
            z_dim=cfg[f"{side}_z_dim"],
            ffn_dim=cfg[f"{side}_hidden_dim"] if ffn_dim is None else ffn_dim,
            heads=cfg[f"{side}_attention_heads"],
            ema_dim=cfg[f"{side}_n_dim"],
            chunk_size=cfg.get(f"{side}_chunk_size", -1),
            norm_groups=cfg.norm_num_groups,
            rope_base=cfg.rope_base,
            swiglu=cfg.swiglu,
            layer_scale=cfg.layer_scale,
            residual_hops=cfg.residual_hops,
            norm_affine=not cfg.no_affine_norm,
            bidirectional=side == "encoder",
            init_mode=str(cfg.init_mode),
            dropout=cfg.dropout,
            attention_dropout=cfg.attention_dropout,
            attention_drops=str(cfg.attention_drops),
            hidden_dropout=cfg.hidden_dropout,
            checkpoint_activations=cfg.checkpoint_activations,
            **more,
        )

    return build()


@naming_flags("decoder", "max_target_positions")
def llama_layer_config(cfg: DictConfig) -> LlamaLayerConfig:
    """Shape of one layer of a completed LlamaLanguageModelConfig, checked.

    Raises:
        ValueError: where an option is out of range.
    """
    width, ffn_dim = cfg.decoder_embed_dim, cfg.decoder_ffn_embed_dim
    return LlamaLayerConfig(
        embed_dim=width,
        heads=cfg.decoder_attention_heads,
        ffn_dim=-(-8 * width // 768) * 256 if ffn_dim is None else ffn_dim,
        rope_base=cfg.rope_base,
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
    )
