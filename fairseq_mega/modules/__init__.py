"""The layers of MEGA and MEGALODON and their parts, as modules on batch-first tensors (B, L, D), without fairseq."""

from .config import MegaLayerConfig
from .ema import MultiDimensionalDampedEMA
from .gated_attention import GatedAttention
from .layer import LayerContext, LayerOutput
from .mega_layer import MegaLayer
from .megalodon.config import MegalodonLayerConfig
from .megalodon.layer import MegalodonLayer
from .trunk import Trunk

__all__ = [
    "GatedAttention",
    "LayerContext",
    "LayerOutput",
    "MegaLayer",
    "MegaLayerConfig",
    "MegalodonLayer",
    "MegalodonLayerConfig",
    "MultiDimensionalDampedEMA",
    "Trunk",
]
