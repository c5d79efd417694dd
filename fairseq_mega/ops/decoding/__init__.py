"""One step of a causal sub-layer or of all layers, for decoding without gradients.

:func:`step_functions` returns the functions of a step. Each covers a whole sub-layer with its linear maps, because
separate calls of kernels are a large part of a step's time. The reference spells out the sub-layer; a kernel computes
it in one call.
"""

from typing import Callable, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common.dispatch import Operator, Path, kernels_unavailable
from fairseq_mega.ops.common.native import DTYPES
from fairseq_mega.ops.common.transforms import is_transformed
from fairseq_mega.ops.packed_linear import MOST_ROWS

from . import native, reference
from .fixed import Place, attention_at_place, place_of
from .joined import JoinedState, JoinedStep, join
from .reference import StepState
from .time_buffer import TimeBuffer
from .weights import (
    AttentionWeights,
    FeedForwardWeights,
    GatedAttentionWeights,
    LayerWeights,
    NormalizedAttentionWeights,
    StepBias,
    StepMap,
    StepNorm,
    complex_step_coefficients,
    step_coefficients,
    step_map,
    step_norm,
)

__all__ = [
    "AttentionWeights",
    "FeedForwardWeights",
    "GatedAttentionWeights",
    "JoinedState",
    "JoinedStep",
    "LayerWeights",
    "NormalizedAttentionWeights",
    "Place",
    "StepBias",
    "StepFunctions",
    "StepMap",
    "StepNorm",
    "StepState",
    "TimeBuffer",
    "attention_at_place",
    "complex_step_coefficients",
    "place_of",
    "step_coefficients",
    "step_functions",
    "step_map",
    "step_norm",
]

PATHS = Operator("decoding", Path("reference"), Path("native", kernels_unavailable, DTYPES))

AttentionFunction = Callable[..., Tuple[Tensor, StepState]]


class StepFunctions(NamedTuple):
    """Functions of one step; :mod:`.reference` and :mod:`.native` document arguments and results.

    A function is None where operators on sequences should compute the step.
    """

    normalized_attention: AttentionFunction
    gated_attention: Optional[AttentionFunction] = None
    feed_forward: Optional[Callable[[Tensor, Tensor, FeedForwardWeights], Tensor]] = None
    join: Optional[Callable[[Sequence[LayerWeights]], Optional[JoinedStep]]] = None

    def attention(self, weights: AttentionWeights) -> Optional[AttentionFunction]:
        """Return the function for an attention with these parameters."""
        return self.gated_attention if isinstance(weights, GatedAttentionWeights) else self.normalized_attention


OTHERS = StepFunctions(reference.normalized_attention_step)  # for devices and types without kernels
REFERENCE = StepFunctions(reference.normalized_attention_step, reference.gated_attention_step)
NATIVE = StepFunctions(native.normalized_attention_step, native.gated_attention_step, native.feed_forward_step, join)
# For more rows than the kernels' linear maps accept: PyTorch computes the maps.
NATIVE_OF_MANY = StepFunctions(reference.normalized_attention_step, native.gated_attention_step_of_many)


def step_functions(x: Tensor) -> Optional[StepFunctions]:
    """Return the functions that compute x (B, L, D) without gradients if it is one step; None where no function does.

    The kernels of whole sub-layers require float32 on a CPU. On a GPU with kernels the operators on sequences launch
    the fewest. FAIRSEQ_MEGA_PATHS can force "reference" or "native", see :mod:`fairseq_mega.ops.common.dispatch`.

    Raises:
        ValueError: for an unknown path.
        RuntimeError: where "native" is forced and the kernels are missing.
    """
    if x.size(1) != 1:
        return None
    path = PATHS.forced()
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return None
    if x.size(0) == 0 or is_transformed():
        return None
    if path == "reference":
        return REFERENCE
    if PATHS.choose(path, x) != "native":
        return OTHERS
    if x.device.type != "cpu":
        return None
    if x.dtype != torch.float32:
        return OTHERS
    return NATIVE if x.size(0) <= MOST_ROWS else NATIVE_OF_MANY
