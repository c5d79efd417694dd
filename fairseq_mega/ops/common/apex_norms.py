"""Layer and RMS norm by the fused kernels of NVIDIA's apex, where apex is installed and faster than torch.

The rule follows published measurements; it has not been measured on a GPU here (FAIRSEQ_MEGA_APEX=on and off are for
measuring):

RMS norm, half precision
    apex. Its one kernel reads and writes 2 bytes an element and computes in float32; converting, normalising in
    float32 and converting back, as ours does, moves 20 in three kernels.
RMS norm, float32
    apex where torch is older than 2.9, which composes several kernels: a fused one is 9 times as fast (pytorch#153666).
Layer norm
    torch's: apex's took 1.3 to 1.5 times as long on an A100 for every width from 32 to 2,048 (EleutherAI/gpt-neox#428)
    and on an RTX 3090 (pytorch#37713). But while training with torch older than 2.8, for at least 32,768 rows of at
    most 1,024 features, apex's: torch's gradients of scale and shift went through the rows one block per few features
    (pytorch#69963; a faster reduction made the whole backward pass 5 to 10 times as fast, pytorch#148605).
"""

import contextlib
import functools
import importlib
import os
import re
from typing import Any, ContextManager, Optional, Tuple

import torch
from torch import Tensor

from .transforms import is_transformed

VARIABLE = "FAIRSEQ_MEGA_APEX"
MODES = ("auto", "on", "off")
HALF = (torch.float16, torch.bfloat16)
FUSED_RMS_NORM = (2, 9)  # first torch with a CUDA kernel of its own
FAST_SCALE_GRADIENT = (2, 8)  # first torch whose layer norm spreads the reduction over rows
MANY_ROWS, FEW_FEATURES = 32768, 1024


def torch_version() -> Tuple[int, int]:
    """Major and minor version of torch."""
    major, minor = re.findall(r"\d+", torch.__version__)[:2]
    return int(major), int(minor)


@functools.lru_cache(maxsize=None)
def mode() -> str:
    """Return the value of FAIRSEQ_MEGA_APEX, read once; raise ValueError if it is not one of MODES."""
    found = os.environ.get(VARIABLE, "auto")
    if found not in MODES:
        raise ValueError(f"{VARIABLE}={found}: choose from {', '.join(MODES)}")
    return found


@functools.lru_cache(maxsize=None)
def kernels() -> Any:
    """Return apex's module of fused norms; None without NVIDIA's apex, or if it was built without its kernels."""
    try:
        importlib.import_module("fused_layer_norm_cuda")
        return importlib.import_module("apex.normalization.fused_layer_norm")
    except ImportError:
        return None


def possible(x: Tensor, weight: Optional[Tensor]) -> bool:
    """Return whether apex's kernels accept the tensors and give the same results as torch's."""
    return (
        x.is_cuda
        and mode() != "off"
        and x.numel() > 0
        and x.dtype in (torch.float32, *HALF)
        and (weight is None or weight.dtype == x.dtype)
        and not torch.is_autocast_enabled("cuda")  # apex would then compute in half what torch keeps in float32
        and not (torch.jit.is_tracing() or torch.jit.is_scripting() or torch.compiler.is_compiling())
        and not is_transformed()
        and kernels() is not None
    )


def supports_rms_norm(x: Tensor, weight: Optional[Tensor]) -> bool:
    """Return whether apex computes the RMS norm of ``x`` (..., D), by the rule above."""
    return possible(x, weight) and (mode() == "on" or x.dtype in HALF or torch_version() < FUSED_RMS_NORM)


def supports_layer_norm(x: Tensor, weight: Optional[Tensor]) -> bool:
    """Return whether apex computes the layer norm of ``x`` (..., D), by the rule above."""
    if not possible(x, weight):
        return False
    if mode() == "on":
        return True
    trains = weight is not None and weight.requires_grad and torch.is_grad_enabled()
    tall = x.numel() // x.size(-1) >= MANY_ROWS and x.size(-1) <= FEW_FEATURES
    return trains and tall and torch_version() < FAST_SCALE_GRADIENT


def device_of(x: Tensor) -> ContextManager[Any]:
    """Set the current device to the tensor's: apex launches on the current device (NVIDIA/apex#1022)."""
    return torch.cuda.device(x.device) if x.is_cuda else contextlib.nullcontext()


def row_norm(
    x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], centred: bool, eps: float
) -> Optional[Tensor]:
    """Compute :func:`fairseq_mega.ops.norm.row_norm` in the type of x; return None where apex does not."""
    if centred:
        return layer_norm(x, weight, bias, eps) if supports_layer_norm(x, weight) else None
    return rms_norm(x, weight, eps) if supports_rms_norm(x, weight) else None


def rms_norm(x: Tensor, weight: Optional[Tensor], eps: float) -> Tensor:
    """``weight x / sqrt(mean(x^2) + eps)`` over the last axis; ``x`` (..., D), ``weight`` (D,) or None."""
    shape = (x.size(-1),)
    with device_of(x):
        if weight is None:
            return kernels().fused_rms_norm(x, shape, eps)
        return kernels().fused_rms_norm_affine(x, weight, shape, eps)


def layer_norm(x: Tensor, weight: Optional[Tensor], bias: Optional[Tensor], eps: float) -> Tensor:
    """Layer norm over the last axis; ``x`` (..., D), ``weight`` and ``bias`` both (D,) or both None."""
    shape = (x.size(-1),)
    with device_of(x):
        if weight is None or bias is None:
            return kernels().fused_layer_norm(x, shape, eps)
        return kernels().fused_layer_norm_affine(x, weight, bias, shape, eps)
