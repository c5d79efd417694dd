"""The step of a gated attention by the compiled kernels; arguments and results as in :mod:`.reference`, all float32."""

from typing import Optional, Tuple

from torch import Tensor

from fairseq_mega.ops import native
from fairseq_mega.ops.attention import FUNCTIONS

from .coefficients import StepCoefficients
from .time_buffer import TimeBuffer


def gated_ema_step(x: Tensor, coefficients: StepCoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """As :func:`fairseq_mega.ops.step.reference.gated_ema_step`."""
    return native.operators.average_step(x, *coefficients, state)


def attention_step(
    gates: Tensor,
    value: Tensor,
    kappa: Tensor,
    mu: Tensor,
    bias: Tensor,
    keys: TimeBuffer,
    values: TimeBuffer,
    function: str,
    most: Optional[int],
) -> Tuple[Tensor, TimeBuffer, TimeBuffer]:
    """As :func:`fairseq_mega.ops.step.reference.attention_step`; the kernel writes to the room behind the buffers."""
    past, index = len(keys), FUNCTIONS.index(function)
    keys, values = keys.grow(1, most), values.grow(1, most)
    out = native.operators.attention_step(gates, value, kappa, mu, bias, keys.room, values.room, past, index)
    return out, keys, values


def mix_step(residual: Tensor, gates: Tensor, projected: Tensor) -> Tensor:
    """As :func:`fairseq_mega.ops.step.reference.mix_step`."""
    return native.operators.mix_step(residual, gates, projected)
