"""Parameters of sub-layers in the form for single steps."""

from typing import Callable, NamedTuple, Optional, Protocol, Tuple, Union

import torch
from torch import Tensor

from fairseq_mega.ops.ema import EMACoefficients
from fairseq_mega.ops.rotary import rotations
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


class BiasTables(Protocol):
    """A relative bias, as tables of its values."""

    def reach(self, length: int) -> int:
        """Return the positions of the table for the last of ``length`` steps."""
        ...

    def table(self, reach: int) -> Tensor:
        """Return values of which those of the last of ``length`` steps begin at entry ``reach - length``."""
        ...


class StepBias:
    """Relative bias of single steps, from one table, which is made again when a text exceeds it.

    Args:
        bias: whose parameters do not change while the object is in use.
    """

    def __init__(self, bias: BiasTables) -> None:
        self.bias = bias
        self._reach, self._table = 0, torch.empty(0)

    def table(self, reach: int) -> Tensor:
        """Return the table of ``reach`` positions."""
        if reach != self._reach:
            self._reach, self._table = reach, self.bias.table(reach)
        return self._table

    def at(self, length: int) -> Tensor:
        """Return the values (length,) of the last of ``length`` steps."""
        reach = self.bias.reach(length)
        return self.table(reach)[reach - length : reach]


class GatedAttentionWeights(NamedTuple):
    """MEGA's gated attention: its norm and maps as functions, and for the kernels where possible; its settings."""

    normalize: Optional[Function]  # the norm before the sub-layer, None where it has none
    norm: Optional[StepNorm]  # the same for the kernels: a layer norm with eps = 1e-5
    projections: Tuple[Function, ...]  # linear maps of value, gates and output
    maps: Optional[Tuple[StepMap, ...]]  # the same for the kernels
    kappa: Tensor  # (2, z), scales of query and key
    mu: Tensor  # (2, z), offsets of query and key
    coefficients: StepCoefficients
    bias: StepBias
    function: str  # the attention function
    most: Optional[int]  # steps of a chunk, None for no chunks
    normalize_after: Optional[Function]  # the norm after the sub-layer, None where it has none


class NormalizedAttentionWeights(NamedTuple):
    """MEGALODON's attention; norm and maps as in :class:`GatedAttentionWeights`."""

    normalize: Callable[..., Tuple[Tensor, TimestepNormState]]  # of (B, 1, D), None, and the statistics before
    norm: Optional[StepNorm]  # with eps = 1e-5
    groups: int  # of the norm
    projections: Tuple[Function, ...]
    maps: Optional[Tuple[StepMap, ...]]
    scale: Tensor  # (2, H, E), of query and key
    offset: Tensor  # (2, H, E)
    coefficients: ComplexStepCoefficients
    normalize_average: Function  # what follows the EMA
    rope_base: float
    most: Optional[int]  # steps of a chunk, None for no chunks

    def turns(self, past: int) -> Tensor:
        """Return rotations (reach, E / 2) of a chunk's positions, complex; reach is above ``past``."""
        reach = self.most or 1 << past.bit_length()  # a power of two above past
        return rotations(self.scale.size(-1) // 2, reach, self.rope_base, self.scale.dtype, self.scale.device)


AttentionWeights = Union[GatedAttentionWeights, NormalizedAttentionWeights]


class FeedForwardWeights(NamedTuple):
    """A feed-forward sub-layer for the kernels."""

    normalize: Optional[Function]  # the norm before the sub-layer, None where it has none
    norm: Optional[StepNorm]  # the same for the kernels: a layer norm with eps = 1e-5
    maps: Tuple[StepMap, ...]
    scale: Optional[Tensor] = None  # (D,), of its output, None for one
    normalize_after: Optional[Function] = None  # the norm after the sub-layer, None where it has none


class LayerWeights(NamedTuple):
    """A layer of the two sub-layers."""

    attention: AttentionWeights
    feed_forward: FeedForwardWeights
    residual_hops: int = 1  # 2: the layer's input, not the attention's output, is the residual of the feed-forward
