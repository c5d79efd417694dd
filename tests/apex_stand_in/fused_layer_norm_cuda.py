"""A stand-in for apex's compiled kernels of norms: float32 statistics, written out."""

from typing import List

from torch import Tensor

USED: List[str] = []  # norms of each call


def layer_norm(x: Tensor, eps: float) -> Tensor:
    """Without scale and shift, in float32."""
    USED.append("layer")
    wide = x.float() - x.float().mean(-1, keepdim=True)
    return wide / (wide.square().mean(-1, keepdim=True) + eps).sqrt()


def rms_norm(x: Tensor, eps: float) -> Tensor:
    """Without scale, in float32."""
    USED.append("rms")
    return x.float() / (x.float().square().mean(-1, keepdim=True) + eps).sqrt()
