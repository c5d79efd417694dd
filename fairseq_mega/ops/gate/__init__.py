"""The update gate of MEGA's sub-layers: :func:`gated_residual`, fused by the compiled kernels where there are any."""

from typing import Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_mega.ops import native
from fairseq_mega.ops.paths import Paths

from .fused import gated_residual_fused

__all__ = ["gated_residual"]

PATHS = Paths("gate", ("reference", "fused"), "FAIRSEQ_MEGA_GATE_PATH")


def gated_residual(
    residual: Tensor, update: Tensor, candidate: Tensor, addend: Optional[Tensor] = None, *, path: Optional[str] = None
) -> Tensor:
    """Mix the candidate into the residual: ``residual + sigmoid(update) (candidate - residual)``.

    Args:
        residual: (..., D).
        update: (..., D), logits of the update gate.
        candidate: (..., D).
        addend: (..., D); where given, the candidate is ``SiLU(candidate + addend)``.
        path: "reference" or "fused" to force a path, "auto" or None for fused wherever its kernels can run; the
            environment variable FAIRSEQ_MEGA_GATE_PATH forces it where the argument is None.

    Returns:
        (..., D).

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "fused" is forced and cannot run; the message says how to build it.

    Source: MEGA (Ma et al., ICLR 2023), Eq. 13 to 15.
    """
    path = PATHS.forced(path)
    if path == "fused":
        native.require(residual, "the fused gate")
    same = update.dtype == candidate.dtype == residual.dtype and (addend is None or addend.dtype == residual.dtype)
    if path == "fused" or (path == "auto" and same and native.usable(residual)):
        return gated_residual_fused(residual, update, candidate, addend)
    if addend is not None:
        candidate = F.silu(candidate + addend)
    return torch.addcmul(residual, torch.sigmoid(update), candidate - residual)
