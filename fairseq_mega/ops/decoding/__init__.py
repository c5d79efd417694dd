"""Decoding step by step on a CPU: kernels for all that a gated attention does between its linear maps."""

from typing import NamedTuple, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_mega.ops import native
from fairseq_mega.ops.attention import FUNCTIONS
from fairseq_mega.ops.dispatch import Operator, Path, kernels_obstacle
from fairseq_mega.ops.ema import EMACoefficients

__all__ = ["StepAverage", "fused", "gated_attention_step", "step_average"]

PATHS = Operator("decoding", Path("reference"), Path("native", kernels_obstacle, native.DTYPES))


class StepAverage(NamedTuple):
    """Coefficients of a real EMA for single steps, (D, N) each.

    The decay is the sum of two float32 numbers, as a long text multiplies by it thousands of times.
    """

    decay_high: Tensor
    decay_low: Tensor
    expansion: Tensor
    projection: Tensor
    omega: Tensor  # (D,), weight of the skip


def step_average(coefficients: EMACoefficients, omega: Tensor) -> StepAverage:
    """Coefficients for :func:`gated_attention_step` from those of the recurrence, in float32."""
    exact = torch.exp(coefficients.log_decay.double())
    high = exact.float()
    return StepAverage(high, (exact - high).float(), coefficients.expansion, coefficients.projection, omega)


def fused(x: Tensor) -> bool:
    """Whether the kernels of this module serve one step of x (B, 1, D): float32 on a CPU, no gradient.

    The environment's choice ("reference" or "native", see :mod:`fairseq_mega.ops.dispatch`) decides where there is one.

    Raises:
        ValueError: for an unknown path.
        RuntimeError: where "native" is forced and the kernels are missing.
    """
    path = PATHS.forced()
    if path == "reference" or torch.is_grad_enabled() or x.dtype != torch.float32 or x.device.type != "cpu":
        return False
    if torch.is_autocast_enabled("cpu") or torch.compiler.is_compiling():
        return False
    return PATHS.choose(path, x) == "native"


def gated_attention_step(
    x: Tensor,
    residual: Tensor,
    average: StepAverage,
    state: Optional[Tensor],
    maps: Tuple[nn.Linear, nn.Linear, nn.Linear],
    kappa: Tensor,
    mu: Tensor,
    bias: Tensor,
    keys: Tensor,
    values: Tensor,
    past: int,
    function: str,
) -> Tuple[Tensor, Tensor]:
    """One step of a gated attention with SiLU, between its norm and its output.

    Args:
        x: (B, D), normalised; all tensors float32.
        residual: (B, D).
        average: coefficients of the EMA.
        state: (B, D, N), the EMA's, or None for zeros.
        maps: of the values (v, D), of the gates (2 D + z + v, D), and of the output (D, v), with biases.
        kappa, mu: (2, z).
        bias: (past + 1,), the relative bias of the new query.
        keys, values: (B, room, z) and (B, room, v), of which ``past`` steps are there; the next is written.
        past: number of steps before this one in its chunk.
        function: the attention function.

    Returns:
        (B, D), and the new state of the EMA (B, D, N).

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 to 15.
    """
    ops = native.operators
    value_map, gate_map, output_map = maps
    value = F.silu(value_map(x))
    smooth, new_state = ops.average_step(x, *average, state)
    gates = gate_map(smooth)
    attended = ops.attention_step(gates, value, kappa, mu, bias, keys, values, past, FUNCTIONS.index(function))
    return ops.mix_step(residual, gates, output_map(attended)), new_state
