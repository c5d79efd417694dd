"""One step of a causal gated attention, for decoding: the EMA, the attention and the gates between its linear maps.

Three functions compute it (:class:`StepFunctions`), once as a plain reference and once by compiled kernels. The linear
maps between them are the caller's::

    value = value_proj(x)
    average, ema = step.ema(x, coefficients, ema)
    gates = gate_proj(average)
    attended, keys, values = step.attention(gates, value, kappa, mu, bias, keys, values, function, most)
    y = step.mix(residual, gates, output_proj(attended))

The kernels also compute whole sub-layers in one call, linear maps included, as calling them takes a good part of a
step's time, with the norm before them: ``gated_attention`` all five lines, ``normalized_attention`` MEGALODON's,
``feed_forward`` a feed-forward sub-layer of either; ``timestep_norm`` the norm after MEGALODON's last layer.
"""

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.common.dispatch import Operator, Path, kernels_obstacle
from fairseq_mega.ops.common.native import DTYPES
from fairseq_mega.ops.packed_linear import MOST_ROWS
from fairseq_mega.ops.timestep_norm import TimestepNormState

from . import native, reference
from .coefficients import StepCoefficients, step_coefficients
from .native import AttentionWeights, ComplexStepCoefficients, StepMap, StepNorm
from .time_buffer import TimeBuffer

__all__ = [
    "AttentionWeights",
    "ComplexStepCoefficients",
    "StepCoefficients",
    "StepFunctions",
    "StepMap",
    "StepNorm",
    "TimeBuffer",
    "step_coefficients",
    "step_functions",
]

PATHS = Operator("decoding", Path("reference"), Path("native", kernels_obstacle, DTYPES))


class StepFunctions(NamedTuple):
    """The functions of one path; :mod:`.reference` documents their arguments and results."""

    ema: Callable[..., Tuple[Tensor, Tensor]]
    attention: Callable[..., Tuple[Tensor, TimeBuffer, TimeBuffer]]
    mix: Callable[..., Tensor]
    # Whole sub-layers, see .native; the reference leaves them to the caller.
    gated_attention: Optional[Callable[..., Tuple[Tensor, Tensor, TimeBuffer, TimeBuffer]]] = None
    feed_forward: Optional[Callable[..., Tensor]] = None
    normalized_attention: Optional[Callable[..., Tuple[Any, ...]]] = None
    timestep_norm: Optional[Callable[..., Tuple[Tensor, TimestepNormState]]] = None


NATIVE_STEPS = StepFunctions(
    native.gated_ema_step,
    native.attention_step,
    native.mix_step,
    native.gated_attention_step,
    native.feed_forward_step,
    native.normalized_attention_step,
    native.timestep_norm_step,
)
FUNCTIONS: Dict[str, StepFunctions] = {
    "reference": StepFunctions(reference.gated_ema_step, reference.attention_step, reference.mix_step),
    "native": NATIVE_STEPS,
}
# Of more rows than the kernels' linear maps are for; these are PyTorch's then.
NATIVE_OF_MANY = NATIVE_STEPS._replace(gated_attention=None, feed_forward=None, normalized_attention=None)


def step_functions(x: Tensor) -> Optional[StepFunctions]:
    """The functions that compute one step of x (B, 1, D) without gradients; None where operators on sequences should.

    The kernels take float32 on a CPU. The environment's choice ("reference" or "native", see
    :mod:`fairseq_mega.ops.common.dispatch`) decides where there is one.

    Raises:
        ValueError: for an unknown path.
        RuntimeError: where "native" is forced and the kernels are missing.
    """
    path = PATHS.forced()
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or torch.is_autocast_enabled(x.device.type):
        return None
    if path == "reference":
        return FUNCTIONS[path]
    if x.dtype != torch.float32 or x.device.type != "cpu":
        return None
    if PATHS.choose(path, x) != "native":
        return None
    return NATIVE_STEPS if x.size(0) <= MOST_ROWS else NATIVE_OF_MANY
