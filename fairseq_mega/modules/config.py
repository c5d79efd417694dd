"""Configuration of a MEGA layer, checked once for every model."""

from dataclasses import dataclass
from typing import Optional

from fairseq_mega.ops.attention import FUNCTIONS

from .activation import ACTIVATIONS
from .errors import FieldError, check_layer
from .norm import NORMS
from .relative_bias import BIASES


@dataclass(frozen=True)
class MegaLayerConfig:
    """Shape and regularisation of a MEGA layer, with the paper's symbols.

    Raises:
        FieldError: where a value is out of range; the message names field, value and remedy.
    """

    embed_dim: int  # d
    hidden_dim: int  # v, width of the values
    z_dim: int  # z, width of the shared representation
    ema_dim: int = 16  # h in the paper, N in the code: dimensions of the EMA per feature; 0 = no EMA
    ffn_dim: int = 0  # inner width of the feed-forward sub-layer; 0 = none
    chunk_size: int = -1  # C, attention chunk; -1 = one chunk for everything
    max_positions: int = 1024  # of the simple relative bias where there are no chunks
    truncation: Optional[int] = None  # reach of the EMA kernel; None = no limit
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
    stochastic_depth: float = 0.0  # probability that a sample skips a sub-layer's candidate or FFN output
    checkpoint_activations: bool = False  # recompute the layer in the backward pass

    def __post_init__(self) -> None:
        check_layer(
            self,
            {"embed_dim": 1, "hidden_dim": 1, "z_dim": 1, "ema_dim": 0, "ffn_dim": 0, "max_positions": 1},
            attention_function=FUNCTIONS,
            activation=tuple(ACTIVATIONS),
            relative_bias=BIASES,
            norm=NORMS,
        )
        if self.relative_bias == "rotary" and self.z_dim % 2 != 0:
            raise FieldError(
                "z_dim", "{field} {value}: {relative_bias} rotary requires an even number", value=self.z_dim
            )
