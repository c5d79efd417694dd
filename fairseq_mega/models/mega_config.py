"""Options of MEGA's layers, and options and checks of the encoder-decoder."""

from argparse import Namespace
from dataclasses import dataclass, field
from typing import Any, Optional, Type, Union

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import II, DictConfig, OmegaConf
from torch import nn

from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.embedding import TokenEmbedding
from fairseq_mega.modules.layers import ACTIVATIONS
from fairseq_mega.modules.norm import NORMS
from fairseq_mega.modules.position import BIASES
from fairseq_mega.ops.attention import FUNCTIONS

from .tables import AdaptiveOptions

DEFAULT_MAX_POSITIONS = 1024


ActivationChoice = ChoiceEnum(list(ACTIVATIONS))
FunctionChoice = ChoiceEnum(list(FUNCTIONS))
NormChoice = ChoiceEnum(list(NORMS))
BiasChoice = ChoiceEnum(list(BIASES))


@dataclass
class LayerOptions(FairseqDataclass):
    """Command-line options of MEGA's layers that every model has, named as in the published code."""

    activation_fn: ActivationChoice = field(default="silu", metadata={"help": "activation function"})  # type: ignore[valid-type]
    attention_activation_fn: FunctionChoice = field(  # type: ignore[valid-type]
        default="softmax", metadata={"help": "attention function"}
    )
    dropout: float = field(
        default=0.1, metadata={"help": "dropout of embeddings, EMA output, candidate and FFN output"}
    )
    attention_dropout: float = field(default=0.0, metadata={"help": "dropout of attention weights"})
    hidden_dropout: float = field(default=0.0, metadata={"help": "dropout of the attention's values"})
    activation_dropout: float = field(default=0.0, metadata={"help": "dropout after the activation of the FFN"})
    feature_dropout: bool = field(default=False, metadata={"help": "drop whole features instead of single elements"})
    normalization_type: NormChoice = field(default="layernorm", metadata={"help": "norm of all sub-layers"})  # type: ignore[valid-type]
    normalize_before: bool = field(default=False, metadata={"help": "norm before each sub-layer instead of after it"})
    normalize_embedding: bool = field(
        default=False, metadata={"help": "norm on the embeddings (post-norm models only)"}
    )
    no_scale_embedding: bool = field(default=False, metadata={"help": "do not scale embeddings by sqrt(d)"})
    rel_pos_bias: BiasChoice = field(default="simple", metadata={"help": "relative positional bias"})  # type: ignore[valid-type]
    truncation_length: int = field(
        default=0, metadata={"help": "reach of the EMA's kernel in training; below 1 for no truncation"}
    )
    checkpoint_activations: bool = field(
        default=False,
        metadata={"help": "recompute each layer in the backward pass: less memory, a third more time"},
    )


@dataclass
class MegaConfig(AdaptiveOptions, LayerOptions):
    """Command-line options of ``--arch mega``, named as in the published code."""

    encoder_embed_path: Optional[str] = field(default=None, metadata={"help": "pretrained encoder embeddings"})
    encoder_embed_dim: int = field(default=512, metadata={"help": "encoder width d"})
    encoder_hidden_dim: int = field(default=1024, metadata={"help": "width v of the attention's values in the encoder"})
    encoder_ffn_embed_dim: Optional[int] = field(
        default=None,
        metadata={"help": "inner width of the encoder's FFN, 0 for none (default: --encoder-hidden-dim)"},
    )
    encoder_z_dim: int = field(default=128, metadata={"help": "width z of the shared query/key representation"})
    encoder_n_dim: int = field(default=16, metadata={"help": "EMA dimensions N per feature, 0 for no EMA"})
    encoder_layers: int = field(default=6, metadata={"help": "number of encoder layers"})
    encoder_chunk_size: int = field(
        default=-1, metadata={"help": "attention chunk C of the encoder, -1 for full attention"}
    )

    decoder_embed_path: Optional[str] = field(default=None, metadata={"help": "pretrained decoder embeddings"})
    decoder_embed_dim: Optional[int] = field(default=None, metadata={"help": "decoder width (default: the encoder's)"})
    decoder_hidden_dim: Optional[int] = field(default=None, metadata={"help": "default: the encoder's"})
    decoder_ffn_embed_dim: Optional[int] = field(default=None, metadata={"help": "default: the encoder's"})
    decoder_z_dim: Optional[int] = field(default=None, metadata={"help": "default: the encoder's"})
    decoder_n_dim: Optional[int] = field(default=None, metadata={"help": "default: the encoder's"})
    decoder_layers: int = field(default=6, metadata={"help": "number of decoder layers"})
    decoder_chunk_size: Optional[int] = field(default=None, metadata={"help": "default: the encoder's"})

    share_decoder_input_output_embed: bool = field(
        default=False, metadata={"help": "one table for the decoder's input and output embeddings"}
    )
    share_all_embeddings: bool = field(
        default=False,
        metadata={
            "help": "one table for source, target and output (needs a joined dictionary; an adaptive softmax has "
            "tables of its own)"
        },
    )
    published_source_padding: bool = field(
        default=False,
        metadata={
            "help": "let cross attention count source positions from the start of the padded batch, as the published "
            "code does, so that a left-padded sentence's scores depend on its batch; by default they do not"
        },
    )
    max_source_positions: int = II("task.max_source_positions")
    max_target_positions: int = II("task.max_target_positions")


def complete(dataclass_type: Type[FairseqDataclass], cfg: Union[DictConfig, Namespace]) -> DictConfig:
    """Fill a model configuration of any origin with the defaults of its dataclass.

    fairseq hands a model its dataclass, the bare options of an architecture preset, or what an older checkpoint
    stored; afterwards all three look alike.
    """
    base = OmegaConf.structured(dataclass_type)
    given = vars(cfg) if isinstance(cfg, Namespace) else {key: cfg[key] for key in cfg}
    known = {key: value for key, value in given.items() if key in base and value is not None}
    for key in ("max_source_positions", "max_target_positions"):  # the task's, missing from old checkpoints
        if key in base:
            known.setdefault(key, DEFAULT_MAX_POSITIONS)
    return OmegaConf.merge(base, known)


def check_embedding_norm(cfg: DictConfig) -> None:
    """Raise a ValueError where a norm on the embeddings would be followed by another one."""
    if cfg.normalize_embedding and cfg.normalize_before:
        raise ValueError("--normalize-embedding is for post-norm models: leave out --normalize-before or the former")


def token_embedding(cfg: DictConfig, tokens: nn.Module, width: int) -> TokenEmbedding:
    """Input embeddings (B, L, width) of the encoder or decoder over a table."""
    norm = str(cfg.normalization_type) if cfg.normalize_embedding else None
    return TokenEmbedding(tokens, cfg.dropout, not cfg.no_scale_embedding, norm, width)


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
    return MegaLayerConfig(
        embed_dim=option("embed_dim"),
        hidden_dim=option("hidden_dim"),
        z_dim=option("z_dim"),
        ema_dim=option("n_dim"),
        ffn_dim=option("hidden_dim") if ffn_dim is None else ffn_dim,
        chunk_size=option("chunk_size"),
        max_positions=cfg[positions],
        max_positions_option="--" + positions.replace("_", "-"),
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
        option_prefix=f"{side}-",
        **more,
    )
