"""Parameters of sub-layers in the form for single steps."""

from itertools import chain
from typing import Callable, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.timestep_norm import TimestepNormState

Function = Callable[[Tensor], Tensor]  # of one step (B, inputs), to (B, outputs)


class StepMap(NamedTuple):
    """A linear map in the form of the kernels, see :func:`fairseq_mega.ops.packed_linear.packed_linear`."""

    weight: Tensor  # (outputs, inputs), float32, bfloat16 or int8
    scale: Optional[Tensor]  # (outputs,) float32
    bias: Optional[Tensor]  # (outputs,) float32


class StepNorm(NamedTuple):
    """Scale and shift of a norm in the form of the kernels, (D,) float32 each, None for one and zero."""

    scale: Optional[Tensor]
    shift: Optional[Tensor]


def step_map(matrix: Tensor, bias: Optional[Tensor]) -> Optional[StepMap]:
    """Return an unpacked linear map in the form of the kernels; None if they cannot read its matrix.

    The kernels for packed matrices also multiply those of float32, as they read them faster than PyTorch does.
    """
    return StepMap(matrix, None, bias) if matrix.dtype == torch.float32 and matrix.is_contiguous() else None


def step_norm(scale: Optional[Tensor], shift: Optional[Tensor]) -> Optional[StepNorm]:
    """Return a norm in the form of the kernels; None if scale or shift is not float32."""
    if any(column is not None and column.dtype != torch.float32 for column in (scale, shift)):
        return None
    return StepNorm(scale, shift)


class StepCoefficients(NamedTuple):
    """Coefficients of a real EMA for single steps, (D, N) each, and of the skip around it.

    The decay is stored as the sum of two numbers, because a long text multiplies by it thousands of times.
    """

    decay_high: Tensor
    decay_low: Tensor
    expansion: Tensor
    projection: Tensor
    omega: Tensor  # (D,), weight of the skip


def step_coefficients(coefficients: EMACoefficients, omega: Tensor) -> StepCoefficients:
    """Return the recurrence's coefficients in the form for single steps, in their precision (float32 or float64)."""
    dtype = coefficients.log_decay.dtype
    exact = torch.exp(coefficients.log_decay.double())
    high = exact.to(dtype)
    return StepCoefficients(high, (exact - high).to(dtype), *coefficients[1:], omega.detach())


class ComplexStepCoefficients(NamedTuple):
    """Coefficients of a complex EMA for single steps, of the skip around it, and of the norm that follows."""

    decay: Tensor  # (D, N, 2), float64, because a long text multiplies by it thousands of times
    expansion: Tensor  # (D, N)
    projection: Tensor  # (D, N, 2), real part and minus the imaginary part
    omega: Tensor  # (D,)
    norm_scale: Optional[Tensor]  # (D,), None for one
    rms: bool  # an RMS norm follows, else SiLU


def complex_step_coefficients(
    coefficients: EMACoefficients, omega: Tensor, *, norm_scale: Optional[Tensor] = None, rms: bool = False
) -> ComplexStepCoefficients:
    """Return the recurrence's coefficients in the form for single steps, in their precision."""
    log_decay, expansion, projection = coefficients
    return ComplexStepCoefficients(
        torch.view_as_real(torch.exp(log_decay.to(torch.complex128))).contiguous(),
        expansion.contiguous(),
        torch.view_as_real(projection.conj().resolve_conj()).contiguous(),
        omega.detach(),
        norm_scale,
        rms,
    )


class GatedAttentionWeights(NamedTuple):
    """Parameters of MEGA's gated attention: norm and maps as functions, and for the kernels where possible."""

    normalize: Optional[Function]  # the norm before the sub-layer, None where it has none
    norm: Optional[StepNorm]  # the same for the kernels: a layer norm with eps = 1e-5
    projections: Tuple[Function, ...]  # linear maps of value, gates and output
    maps: Optional[Tuple[StepMap, ...]]  # the same for the kernels
    kappa: Tensor  # (2, z), scales of query and key
    mu: Tensor  # (2, z), offsets of query and key
    coefficients: StepCoefficients


def gated_attention_weights(
    dtype: torch.dtype,
    normalize: Optional[Function],
    norm: Optional[StepNorm],
    projections: Tuple[Function, ...],
    maps: Optional[Tuple[StepMap, ...]],
    kappa: Tensor,
    mu: Tensor,
    coefficients: StepCoefficients,
) -> Optional[GatedAttentionWeights]:
    """Return the parameters for steps of a dtype; None where query and key have another one."""
    if kappa.dtype != dtype:
        return None
    return GatedAttentionWeights(normalize, norm, projections, maps, kappa, mu, coefficients)


class NormalizedAttentionWeights(NamedTuple):
    """Parameters of MEGALODON's attention; norm and maps as in :class:`GatedAttentionWeights`."""

    normalize: Callable[..., Tuple[Tensor, TimestepNormState]]  # of (B, 1, D), None, and the statistics before
    norm: Optional[StepNorm]  # with eps = 1e-5
    projections: Tuple[Function, ...]
    maps: Optional[Tuple[StepMap, ...]]
    scale: Tensor  # (2, H, E), of query and key
    offset: Tensor  # (2, H, E)
    coefficients: ComplexStepCoefficients
    normalize_average: Function  # what follows the EMA


class FeedForwardWeights(NamedTuple):
    """Parameters of a feed-forward sub-layer in the form of the kernels."""

    norm: Optional[StepNorm]  # the layer norm (eps = 1e-5) before it, None for another norm or none
    maps: Tuple[StepMap, ...]
    scale: Optional[Tensor] = None  # (D,), of its output, None for one


Tensors = List[Optional[Tensor]]  # of a layer, in the order of a kernel for all layers


def are_of_a_gated_layer(attention: GatedAttentionWeights, inner: FeedForwardWeights) -> bool:
    """Return whether the kernel for all layers of MEGA computes layers with these parameters."""
    return attention.norm is not None and attention.maps is not None and inner.norm is not None


def gated_layer_tensors(attention: GatedAttentionWeights, table: Tensor, inner: FeedForwardWeights) -> Tensors:
    """Return the tensors of a MEGA layer, and of the table of its relative bias."""
    assert attention.norm is not None and attention.maps is not None and inner.norm is not None
    own = (*attention.norm, *chain(*attention.maps), attention.kappa, attention.mu, *attention.coefficients, table)
    return [*own, *inner.norm, *chain(*inner.maps)]


def normalized_layer_tensors(
    attention: NormalizedAttentionWeights, inner: Optional[FeedForwardWeights]
) -> Optional[Tensors]:
    """Return the tensors of a MEGALODON layer; None where the kernel for all layers does not compute it."""
    if attention.norm is None or attention.maps is None or inner is None or inner.norm is None:
        return None
    if attention.scale.dtype != torch.float32:
        return None
    own = (*attention.norm, *chain(*attention.maps), attention.scale, attention.offset, *attention.coefficients[:5])
    return [*own, *inner.norm, *chain(*inner.maps), inner.scale]
