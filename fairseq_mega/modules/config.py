"""The numbers that shape one MEGA layer, checked once for every model."""

from dataclasses import dataclass
from typing import Optional

from fairseq_mega.ops.attention import FUNCTIONS

from .layers import ACTIVATIONS
from .norm import NORMS
from .position import BIASES


@dataclass(frozen=True)
class MegaLayerConfig:
    """Shape and regularisation of a MEGA layer, with the paper's symbols.

    ``option_prefix`` is what the command line puts in front of the option names ("encoder-", "decoder-" or nothing),
    so that an error names the option that the user typed.

    Raises:
        ValueError: where a value is out of range; the message names option, value and remedy.
    """

    embed_dim: int  # d
    hidden_dim: int  # v, width of the values
    z_dim: int  # z, width of the shared representation
    ema_dim: int = 16  # h in the paper, N in the code: dimensions of the EMA per feature; 0 = no EMA
    ffn_dim: int = 0  # inner width of the feed-forward sub-layer; 0 = none
    chunk_size: int = -1  # C, attention chunk; -1 = one chunk for everything
    max_positions: int = 1024  # of the simple relative bias where there are no chunks
    max_positions_option: str = "max_positions"
    truncation: Optional[int] = None  # reach of the EMA kernel; None = all
    bidirectional: bool = False
    shift: bool = False  # bidirectional EMA: future part without the current position
    cross_attention: bool = False
    cross_max_positions: int = 1024
    attention_function: str = "softmax"
    activation: str = "silu"
    relative_bias: str = "simple"
    norm: str = "layernorm"
    normalize_before: bool = False
    dropout: float = 0.0
    attention_dropout: float = 0.0
    hidden_dropout: float = 0.0
    activation_dropout: float = 0.0
    feature_dropout: bool = False
    checkpoint_activations: bool = False  # recompute the layer in the backward pass
    option_prefix: str = ""

    def __post_init__(self) -> None:
        prefix = self.option_prefix
        for option, value, least in (
            (f"{prefix}embed-dim", self.embed_dim, 1),
            (f"{prefix}hidden-dim", self.hidden_dim, 1),
            (f"{prefix}z-dim", self.z_dim, 1),
            (f"{prefix}n-dim", self.ema_dim, 0),
            (f"{prefix}ffn-embed-dim", self.ffn_dim, 0),
            (self.max_positions_option.lstrip("-"), self.max_positions, 1),
        ):
            if value < least:
                raise ValueError(f"--{option} {value}: must be at least {least}")
        if self.chunk_size == 0 or self.chunk_size < -1:
            raise ValueError(
                f"--{prefix}chunk-size {self.chunk_size}: give a chunk length of at least 1, or -1 for full attention"
            )
        for option, probability in (
            ("dropout", self.dropout),
            ("attention-dropout", self.attention_dropout),
            ("hidden-dropout", self.hidden_dropout),
            ("activation-dropout", self.activation_dropout),
        ):
            if not 0.0 <= probability < 1.0:
                raise ValueError(f"--{option} {probability}: a dropout probability lies in [0, 1), for example 0.1")
        for option, name, known in (
            ("attention-activation-fn", self.attention_function, FUNCTIONS),
            ("activation-fn", self.activation, tuple(ACTIVATIONS)),
            ("rel-pos-bias", self.relative_bias, BIASES),
            ("normalization-type", self.norm, NORMS),
        ):
            if name not in known:
                raise ValueError(f"--{option} {name}: choose from {', '.join(known)}")
        if self.relative_bias == "rotary" and self.z_dim % 2 != 0:
            raise ValueError(f"--{prefix}z-dim {self.z_dim}: --rel-pos-bias rotary needs an even number")
