"""Single steps of decoding without gradients: the EMA and the attention in few small operations."""

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.modules.norm import rms_norm
from fairseq_mega.ops.decoding import ComplexStepCoefficients
from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.rotary import rotations

from .complex_ema import ComplexEMA


class ComplexStep(NamedTuple):
    """Coefficients of a complex EMA for single steps, (D, N) each."""

    decay: Tensor  # complex128: a long text multiplies by it thousands of times
    expansion: Tensor  # real
    projection: Tensor  # (D, 2 N): real part and minus the imaginary part in turn


def complex_step(coefficients: EMACoefficients) -> ComplexStep:
    """Coefficients for single steps from those of the recurrence."""
    log_decay, expansion, projection = coefficients
    parts = torch.view_as_real(projection.conj().resolve_conj()).flatten(1)
    return ComplexStep(torch.exp(log_decay.to(torch.complex128)), expansion, parts)


def kernel_coefficients(ema: ComplexEMA) -> ComplexStepCoefficients:
    """Those of :func:`complex_step` as the kernel takes them; what follows the EMA is the caller's to fill in."""
    decay, expansion, projection = complex_step(ema.coefficients())
    return ComplexStepCoefficients(
        torch.view_as_real(decay).contiguous(),
        expansion.contiguous(),
        projection.unflatten(1, (-1, 2)).contiguous(),
        ema.omega.detach(),
        norm_scale=None,
        rms=False,
    )


def ema_step(x: Tensor, coefficients: ComplexStep, omega: Tensor, state: Optional[Tensor]) -> Tuple[Tensor, Tensor]:
    """One step of ``CEMA(x) + omega x``.

    Args:
        x: (B, D).
        coefficients: of the EMA.
        omega: (D,), weight of the skip.
        state: (B, D, N) complex before the step, or None for zeros.

    Returns:
        (B, D) in the dtype of x, and the new state (B, D, N).

    Source: MEGALODON (Ma et al., NeurIPS 2024), Eq. 2, as in the published code.
    """
    entering = coefficients.expansion * x.unsqueeze(-1)
    dtype = torch.promote_types(entering.dtype, torch.complex64)
    new = entering.to(dtype) if state is None else (state * coefficients.decay).add_(entering).to(dtype)
    y = torch.linalg.vecdot(torch.view_as_real(new).flatten(2), coefficients.projection)
    return torch.addcmul(y, x, omega.to(y.dtype)).to(x.dtype), new


def query_and_key_step(
    shared: Tensor, scale: Tensor, offset: Tensor, position: int, reach: int, base: float
) -> Tuple[Tensor, Tensor]:
    """Query and key (B, z) of a new step from its shared representation.

    Args:
        shared: (B, z).
        scale, offset: (2, H, E), of query and key.
        position: of the step in its chunk.
        reach: positions are less than this.
        base: of the rotary positions.
    """
    normalized = rms_norm(shared.to(scale.dtype).view(-1, 1, *scale.shape[1:]), None)  # (B, 1, H, E)
    both = torch.addcmul(offset, normalized, scale)  # (B, 2, H, E)
    turn = rotations(scale.size(-1) // 2, reach, base, scale.dtype, scale.device)[position]
    turned = torch.view_as_real(torch.view_as_complex(both.unflatten(-1, (-1, 2))) * turn)
    query, key = turned.flatten(2).to(shared.dtype).unbind(1)
    return query, key


def attend_step(query: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """Softmax attention (B, v) of one query (B, z) to keys (B, n, z) and values (B, n, v), head by head."""
    if heads == 1:
        weights = torch.softmax(torch.bmm(query.unsqueeze(1), keys.transpose(1, 2)), dim=-1)
        return torch.bmm(weights, values).squeeze(1)
    by_head = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (query.unsqueeze(1), keys, values))
    query, keys, values = by_head
    weights = torch.softmax(torch.matmul(query, keys.transpose(2, 3)), dim=-1)
    return torch.matmul(weights, values).flatten(1)
