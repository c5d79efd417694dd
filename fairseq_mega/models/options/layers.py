"""The kind of the layers: functions, norms, biases, recomputation."""

from dataclasses import dataclass, field

from fairseq.dataclass import ChoiceEnum, FairseqDataclass
from omegaconf import DictConfig

from fairseq_mega.modules.activation import ACTIVATIONS
from fairseq_mega.modules.megalodon.config import DROPPED, EMA_NORMS
from fairseq_mega.modules.megalodon.initialization import INIT_MODES
from fairseq_mega.modules.norm import NORMS
from fairseq_mega.modules.relative_bias import BIASES
from fairseq_mega.ops.attention import FUNCTIONS

ActivationChoice = ChoiceEnum(list(ACTIVATIONS))
FunctionChoice = ChoiceEnum(list(FUNCTIONS))
NormChoice = ChoiceEnum(list(NORMS))
BiasChoice = ChoiceEnum(list(BIASES))
DroppedChoice = ChoiceEnum(list(DROPPED))
InitChoice = ChoiceEnum(list(INIT_MODES))
EmaNormChoice = ChoiceEnum(list(EMA_NORMS))


@dataclass
class RecomputationOptions(FairseqDataclass):
    """What the layers keep for the backward pass."""

    checkpoint_activations: bool = field(
        default=False,
        metadata={"help": "recompute each layer in the backward pass: less memory, a third more time"},
    )


@dataclass
class LayerOptions(RecomputationOptions):
    """Options of the layers of any model, named as in the published code."""

    activation_fn: ActivationChoice = field(default="silu", metadata={"help": "activation function"})  # type: ignore[valid-type]
    normalize_before: bool = field(default=False, metadata={"help": "norm before each sub-layer instead of after it"})


@dataclass
class NormOptions(FairseqDataclass):
    """Which norm the layers have."""

    normalization_type: NormChoice = field(default="layernorm", metadata={"help": "norm of all sub-layers"})  # type: ignore[valid-type]


@dataclass
class MegaLayerOptions(NormOptions, LayerOptions):
    """Options of MEGA's layers and of the embeddings below them, named as in the published code."""

    attention_activation_fn: FunctionChoice = field(  # type: ignore[valid-type]
        default="softmax", metadata={"help": "attention function"}
    )
    normalize_embedding: bool = field(
        default=False, metadata={"help": "norm on the embeddings (post-norm models only)"}
    )
    no_scale_embedding: bool = field(default=False, metadata={"help": "do not scale embeddings by sqrt(d)"})
    rel_pos_bias: BiasChoice = field(default="simple", metadata={"help": "relative positional bias"})  # type: ignore[valid-type]
    truncation_length: int = field(
        default=0,
        metadata={"help": "reach of the EMA's kernel where no state is carried (training); below 1: no truncation"},
    )


@dataclass
class RotaryOptions(FairseqDataclass):
    """Options of layers whose positions turn queries and keys."""

    rope_base: float = field(default=10000.0, metadata={"help": "base of the rotary positions"})


@dataclass
class MegalodonLayerOptions(RotaryOptions, RecomputationOptions):
    """Options of MEGALODON's layers."""

    norm_num_groups: int = field(
        default=32, metadata={"help": "groups of features that share their statistics over time"}
    )
    swiglu: bool = field(default=False, metadata={"help": "a gate within the FFN: three matrices instead of two"})
    layer_scale: bool = field(default=False, metadata={"help": "a learned scale of the FFN's output, 0.1 / 2^layer"})
    residual_hops: int = field(
        default=2,
        metadata={"help": "what the FFN is added to: 2, the layer's input, as in the paper; 1, the attention's output"},
    )
    no_affine_norm: bool = field(
        default=False,
        metadata={"help": "no learned scale and shift in the norms over features; those over time keep theirs"},
    )
    init_mode: InitChoice = field(default="he", metadata={"help": "how the layers' matrices are drawn"})  # type: ignore[valid-type]
    attention_drops: DroppedChoice = field(  # type: ignore[valid-type]
        default="keys", metadata={"help": "dropped in the attention: keys before the softmax, or weights after it"}
    )


def check_embedding_norm(cfg: DictConfig) -> None:
    """Raise a ValueError where a norm on the embeddings would be followed by another one."""
    if cfg.normalize_embedding and cfg.normalize_before:
        raise ValueError("--normalize-embedding is for post-norm models: leave out --normalize-before or the former")
