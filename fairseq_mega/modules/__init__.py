"""The parts of a MEGA layer as ``nn.Module``s on batch-first tensors (B, L, D); nothing here knows fairseq."""

from .config import MegaLayerConfig
from .ema import MultiDimensionalDampedEMA
from .gated_attention import GatedAttention
from .layer import LayerContext, LayerOutput
from .mega_layer import MegaLayer
from .trunk import Trunk

__all__ = [
    "GatedAttention",
    "LayerContext",
    "LayerOutput",
    "MegaLayer",
    "MegaLayerConfig",
    "MultiDimensionalDampedEMA",
    "Trunk",
]
