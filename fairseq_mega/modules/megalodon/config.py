"""Configuration of a MEGALODON layer, checked once for every model."""

from dataclasses import dataclass

from fairseq_mega.modules.errors import FieldError, check_at_least, check_choice, check_probability

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
        for field, value, least in (
            ("embed_dim", self.embed_dim, 2),
            ("hidden_dim", self.hidden_dim, 1),
            ("z_dim", self.z_dim, 1),
            ("ema_dim", self.ema_dim, 1),
            ("ffn_dim", self.ffn_dim, 1),
            ("heads", self.heads, 1),
            ("norm_groups", self.norm_groups, 1),
        ):
            check_at_least(field, value, least)
        if self.chunk_size == 0 or self.chunk_size < -1:
            message = "{field} {value}: give a chunk length of at least 1, or -1 for full attention"
            raise FieldError("chunk_size", message, value=self.chunk_size)
        if not self.rope_base > 1.0:
            raise FieldError("rope_base", "{field} {value}: must be greater than 1", value=self.rope_base)
        if self.residual_hops not in (1, 2):
            message = "{field} {value}: give 1, around each sub-layer, or 2, around both"
            raise FieldError("residual_hops", message, value=self.residual_hops)
        for field, total, count, parts in (
            ("z_dim", self.z_dim, 2 * self.heads, "2 x {heads}"),
            ("hidden_dim", self.hidden_dim, self.heads, "{heads}"),
            ("embed_dim", self.embed_dim, self.norm_groups, "{norm_groups}"),
        ):
            if total % count != 0:
                message = "{field} {value}: must be a multiple of " + parts + " = {count}"
                raise FieldError(field, message, value=total, count=count)
        for field, probability in (
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
            ("hidden_dropout", self.hidden_dropout),
            ("stochastic_depth", self.stochastic_depth),
        ):
            check_probability(field, probability)
        for field, name, known in (
            ("attention_drops", self.attention_drops, DROPPED),
            ("ema_norm", self.ema_norm, EMA_NORMS),
            ("init_mode", self.init_mode, INIT_MODES),
        ):
            check_choice(field, name, known)
