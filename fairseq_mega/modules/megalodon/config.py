"""Configuration of a MEGALODON layer, checked once for every model."""

from dataclasses import dataclass

from fairseq_mega.modules.errors import FieldError, check_layer, check_multiple

from .initialization import INIT_MODES

DROPPED = ("keys", "weights")  # what the dropout of the attention drops
EMA_NORMS = ("rmsnorm", "silu")  # what follows the EMA


@dataclass(frozen=True)
class MegalodonLayerConfig:
    """Shape and regularisation of a MEGALODON layer, with the papers' symbols.

    Raises:
        FieldError: where a value is out of range; the message names field, value and remedy.
    """

    embed_dim: int  # d
    hidden_dim: int  # v, width of the values
    z_dim: int  # z, width of the shared representation
    ffn_dim: int  # f, inner width of the feed-forward sub-layer
    heads: int = 1
    ema_dim: int = 16  # N, dimensions of the complex EMA per feature
    norm_groups: int = 32  # G, groups of features that share their statistics over time
    chunk_size: int = -1  # C, attention chunk; -1 = one chunk for everything
    rope_base: float = 10000.0  # of the rotary positions
    swiglu: bool = False  # a gate in the feed-forward sub-layer
    layer_scale: bool = False  # a learned scale of its output
    residual_hops: int = 2  # number of sub-layers that its residual connection spans
    norm_affine: bool = True  # learned scale and shift of the norms over features; norms over time always have them
    bidirectional: bool = False
    ema_norm: str = "rmsnorm"  # one of EMA_NORMS
    init_mode: str = "he"  # initialisation of the matrices
    dropout: float = 0.0
    attention_dropout: float = 0.0
    attention_drops: str = "keys"  # one of DROPPED: before the softmax (DropKey) or after it
    hidden_dropout: float = 0.0
    stochastic_depth: float = 0.0  # probability that a sample skips what a sub-layer adds
    checkpoint_activations: bool = False  # recompute the layer in the backward pass

    def __post_init__(self) -> None:
        least = {
            "embed_dim": 2,
            **dict.fromkeys(("hidden_dim", "z_dim", "ema_dim", "ffn_dim", "heads", "norm_groups"), 1),
        }
        check_layer(self, least, attention_drops=DROPPED, ema_norm=EMA_NORMS, init_mode=INIT_MODES)
        if self.residual_hops not in (1, 2):
            message = "{field} {value}: give 1, around each sub-layer, or 2, around both"
            raise FieldError("residual_hops", message, value=self.residual_hops)
        check_multiple("z_dim", self.z_dim, 2 * self.heads, "2 x {heads}")
        check_multiple("hidden_dim", self.hidden_dim, self.heads, "{heads}")
        check_multiple("embed_dim", self.embed_dim, self.norm_groups, "{norm_groups}")
