"""The step of a gated attention written out, the measure of the kernels."""

from typing import Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops.attention import attention_weights

from .coefficients import StepCoefficients
from .time_buffer import TimeBuffer


def gated_ema_step(x: Tensor, coefficients: StepCoefficients, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """One step of MEGA's EMA sub-layer: ``SiLU(EMA(x) + omega x)``.

    Args:
        x: (B, D).
        coefficients: of the EMA, and the weight of the skip.
        state: (B, D, N) before the step, or None for zeros.

    Returns:
        (B, D) in the dtype of x, and the new state (B, D, N) in that of the coefficients.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 5 and 6; omega and SiLU are the published code's.
    """
    new_state = coefficients.expansion * x.unsqueeze(-1)
    if state is not None:
        new_state = new_state + coefficients.decay_low * state + coefficients.decay_high * state
    y = (coefficients.projection * new_state).sum(-1) + coefficients.omega * x
    return F.silu(y).to(x.dtype), new_state


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
    """Attend from a new step to itself and the steps before it, and apply the reset gate.

    Args:
        gates: (B, D + z + v + D), logits of update gate, shared representation, reset gate, and the candidate.
        value: (B, v), logits of the new step's value.
        kappa, mu: (2, z), scale and offset of query and key.
        bias: (n + 1,), relative bias of the new query.
        keys, values: (B, n, z) and (B, n, v), the steps before; they stay as they are.
        function: the attention function.
        most: how many steps the stream will keep at most, None if that is not known.

    Returns:
        (B, v), and the keys and values with the new step.

    Source: MEGA, Eq. 7 to 12 and 16.
    """
    shared, reset = F.silu(_split(gates, kappa.size(-1), value.size(-1))[1]).split([kappa.size(-1), value.size(-1)], -1)
    query, key = (torch.addcmul(offset, shared, scale).unsqueeze(1) for offset, scale in zip(mu, kappa))
    keys, values = keys.append(key, most), values.append(F.silu(value).unsqueeze(1), most)
    weights = attention_weights(query, keys.steps, function=function, bias=bias)
    return torch.matmul(weights, values.steps).squeeze(1) * reset, keys, values


def mix_step(residual: Tensor, gates: Tensor, projected: Tensor) -> Tensor:
    """Mix the candidate into the residual by the update gate.

    Args:
        residual: (B, D).
        gates: as :func:`attention_step`.
        projected: (B, D), the linear map of the result of :func:`attention_step`.

    Returns:
        (B, D).

    Source: MEGA, Eq. 13 to 15.
    """
    width = residual.size(-1)
    update, candidate = gates[:, :width], gates[:, -width:]
    return torch.lerp(residual, F.silu(candidate + projected), torch.sigmoid(update))


def _split(gates: Tensor, z: int, v: int) -> Tuple[Tensor, ...]:
    """Update gate, shared representation and reset gate, and candidate."""
    width = (gates.size(-1) - z - v) // 2
    return gates.split([width, z + v, width], dim=-1)
