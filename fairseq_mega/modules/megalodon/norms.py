"""The norms of MEGALODON: all keep their scale minus one, so that weight decay pulls it towards one; eps = 1e-5."""

from typing import Any, Callable, Optional, Tuple

import torch
from torch import Tensor, nn

from fairseq_mega.modules.documents import Documents
from fairseq_mega.modules.norm import EPS, RowNorm, type_of_products
from fairseq_mega.ops.decoding import StepNorm, step_norm
from fairseq_mega.ops.norm import counted_from, row_norm
from fairseq_mega.ops.timestep_norm import TimestepNormState, fresh_statistics, timestep_norm, timestep_norm_twice


def at_least_float32(x: Tensor) -> Tensor:
    """x in float32 if it is of half precision."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


class ScaledNorm(nn.Module):
    """Scale and shift of a norm of ``dim`` features.

    Args:
        dim: D.
        affine: whether scale and shift are learned; else they are one and zero.
        shift: whether there is a shift.
    """

    def __init__(self, dim: int, affine: bool = True, shift: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.weight: Optional[nn.Parameter]
        self.bias: Optional[nn.Parameter]
        self.register_parameter("weight", nn.Parameter(torch.empty(dim)) if affine else None)
        self.register_parameter("bias", nn.Parameter(torch.empty(dim)) if affine and shift else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Set the scale to one and the shift to zero."""
        for parameter in (self.weight, self.bias):
            if parameter is not None:
                nn.init.zeros_(parameter)

    @property
    def scale(self) -> Optional[Tensor]:
        """``weight + 1`` (D,), in float32 at least."""
        return counted_from(self.weight, 1.0)

    def of_step(self) -> Optional[StepNorm]:
        """Return scale and shift in the form of the kernels for single steps, or None."""
        return step_norm(self.scale, self.bias)

    def extra_repr(self) -> str:
        return f"{self.dim}, affine={self.weight is not None}"


class RMSNorm(ScaledNorm):
    """``(weight + 1) x / sqrt(mean(x^2) + eps)``, computed in float32 at least."""

    def __init__(self, dim: int, affine: bool = True) -> None:
        super().__init__(dim, affine, shift=False)

    def forward(self, x: Tensor, dtype: Optional[torch.dtype] = None) -> Tensor:
        """Normalise (..., D); into ``dtype``, None for that of x."""
        return row_norm(x, self.weight, centred=False, eps=EPS, origin=1.0, dtype=dtype)


class LayerNorm(ScaledNorm, RowNorm):
    """``(weight + 1) (x - mean) / sqrt(variance + eps) + bias`` over the features, computed in float32 at least."""

    def forward(self, x: Tensor, dtype: Optional[torch.dtype] = None, by: Callable[..., Any] = row_norm) -> Any:
        """Normalise (..., D); into ``dtype``, None for that of x."""
        return by(x, self.weight, self.bias, centred=True, eps=EPS, origin=1.0, dtype=dtype)


class TimestepNorm(ScaledNorm):
    """Norm by the mean and variance of groups of features over all steps so far.

    Its scale and shift are learned even where the other norms have none, as in the published code.

    Args:
        dim: D.
        groups: G, a divisor of D.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 3.2.
    """

    keeps_statistics = True

    def __init__(self, dim: int, groups: int) -> None:
        super().__init__(dim)
        self.groups = groups

    def forward(
        self,
        x: Tensor,
        padding_mask: Optional[Tensor] = None,
        statistics: Optional[TimestepNormState] = None,
        documents: Optional[Documents] = None,
    ) -> Tuple[Tensor, Optional[TimestepNormState]]:
        """Normalise (B, L, D); padded positions (mask (B, L), True = padding) become zero and are not counted. Each
        document has separate statistics.

        Returns:
            The result (B, L, D) and the statistics after the last step; the argument has them before the first one.
        """
        weight, bias = self.weight, self.bias
        assert weight is not None and bias is not None
        parts = None if documents is None else documents.parts()
        return timestep_norm(
            x, weight, bias, self.groups, state=statistics, padding_mask=padding_mask, documents=parts, eps=EPS
        )

    def for_products(
        self,
        x: Tensor,
        padding_mask: Optional[Tensor],
        statistics: Optional[TimestepNormState],
        documents: Optional[Documents],
    ) -> Tuple[Tensor, Tensor, Optional[TimestepNormState]]:
        """Normalise as :meth:`forward`; the second result is for products, in their type where a kernel writes it."""
        if isinstance(self, GroupNorm) or documents is not None or type_of_products(x) == x.dtype:
            y, after = self(x, padding_mask, statistics, documents)
            return y, y, after
        weight, bias = self.weight, self.bias
        assert weight is not None and bias is not None
        return timestep_norm_twice(x, weight, bias, self.groups, state=statistics, padding_mask=padding_mask, eps=EPS)

    def fresh_statistics(self, x: Tensor) -> TimestepNormState:
        """The statistics before the first step of sequences x (B, L, D)."""
        return fresh_statistics(x, self.groups)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, groups={self.groups}"


class GroupNorm(TimestepNorm):
    """Norm by the mean and variance of groups of features over all steps of a sequence, for bidirectional models.

    Source: Wu and He, 2018, over time as in MEGALODON, Figure 2 and Appendix C; it keeps no statistics.
    """

    def forward(
        self,
        x: Tensor,
        padding_mask: Optional[Tensor] = None,
        statistics: Optional[TimestepNormState] = None,
        documents: Optional[Documents] = None,
    ) -> Tuple[Tensor, Optional[TimestepNormState]]:
        """Normalise as :meth:`TimestepNorm.forward` without statistics; each document is a separate sequence."""
        grouped = at_least_float32(x).unflatten(-1, (self.groups, -1))  # (B, L, G, D / G)
        if padding_mask is None and documents is None:
            variance, mean = torch.var_mean(grouped, dim=(1, 3), correction=0, keepdim=True)
        else:
            absent = None if padding_mask is None else padding_mask[:, :, None, None]
            present = torch.ones_like(grouped[..., :1, :1]) if absent is None else (~absent).to(grouped.dtype)

            def total(steps: Tensor) -> Tensor:
                """Return sums of values (B, L, ...) over a sequence (B, 1, ...) or each step's document (B, L, ...)."""
                return steps.sum(1, keepdim=True) if documents is None else documents.totals(steps)

            def present_alone(values: Tensor) -> Tensor:
                return values if absent is None else values.masked_fill(absent, 0.0)

            count = total(present).clamp(min=1)
            grouped = present_alone(grouped)
            mean = total(grouped.mean(3, keepdim=True)) / count
            variance = total(present_alone(grouped - mean).square().mean(3, keepdim=True)) / count
        assert self.scale is not None and self.bias is not None
        y = ((grouped - mean) * torch.rsqrt(variance + EPS)).flatten(2) * self.scale + at_least_float32(self.bias)
        if padding_mask is not None:
            y = y.masked_fill(padding_mask.unsqueeze(-1), 0.0)
        return y.to(x.dtype), None
