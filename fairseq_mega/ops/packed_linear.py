"""Linear maps whose matrix has fewer bytes than float32: :func:`pack` packs a matrix, :func:`packed_linear` applies it.

A step of decoding multiplies every matrix of a model with a few rows, in about the time of reading the matrices.
Only the matrix is rounded: inputs, sums and results keep their precision, or become whole numbers of 32 bits (one row
with an int8 matrix, on processors with AVX2).
"""

import math
from typing import NamedTuple, Optional

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import Operator, Path, kernels_unavailable
from .common.operations import count, map_operations

KINDS = ("bf16", "int8")
# With more rows, unpacking and a product of float32 are faster: measured with AVX-512, 10,000 x 512 and layers of that
# width, one thread. Up to here the kernel needs at most 0.9 of the time of float32.
MOST_ROWS = 64


class PackedMatrix(NamedTuple):
    """A matrix in few bytes: each row of ``data`` times its ``scale``."""

    data: Tensor  # (outputs, inputs), bfloat16 or int8; also float32, a plain matrix
    scale: Optional[Tensor]  # (outputs,) float32; None for bfloat16 and float32


def pack(matrix: Tensor, kind: str) -> PackedMatrix:
    """Round a matrix.

    Args:
        matrix: (outputs, inputs), floating point and finite.
        kind: "bf16", or "int8": the nearest of 255 multiples of a row's largest magnitude / 127.

    Raises:
        ValueError: for another kind, or a matrix that is not finite.
    """
    if kind not in KINDS:
        raise ValueError(f"unknown kind of packed weights {kind!r}: choose from {', '.join(KINDS)}")
    matrix = matrix.detach()
    if not bool(matrix.isfinite().all()):
        raise ValueError("a matrix with infinite values or NaN cannot be packed")
    if kind == "bf16":
        return PackedMatrix(matrix.to(torch.bfloat16).contiguous(), None)
    matrix = matrix.float()
    scale = matrix.abs().amax(dim=1) / 127.0 if matrix.size(1) > 0 else matrix.new_zeros(matrix.size(0))
    rows = torch.where(scale > 0.0, scale, 1.0)
    return PackedMatrix((matrix / rows.unsqueeze(1)).round().to(torch.int8).contiguous(), scale)


def unpack(matrix: PackedMatrix, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return the matrix (outputs, inputs) that a packed matrix represents."""
    if matrix.scale is None:
        return matrix.data.to(dtype)
    return matrix.data.to(dtype) * matrix.scale.unsqueeze(1).to(dtype)


def _packed_kernel_unavailable(x: Tensor, matrix: PackedMatrix) -> Optional[str]:
    if x.device.type != "cpu":
        return f"there are kernels for CPUs only, the tensors are on {x.device.type}"
    if torch.is_grad_enabled() and (x.requires_grad or matrix.data.requires_grad):
        return "it computes no gradients: call it under torch.no_grad()"
    return kernels_unavailable(x)


def _few_rows(x: Tensor, matrix: PackedMatrix) -> bool:
    return x.numel() <= MOST_ROWS * x.size(-1)


PATHS = Operator(
    "packed_linear",
    Path("reference"),
    Path("native", _packed_kernel_unavailable, native.DTYPES, suits=_few_rows),
)


def packed_linear(
    x: Tensor, matrix: PackedMatrix, bias: Optional[Tensor] = None, *, path: Optional[str] = None
) -> Tensor:
    """``x W^T + bias`` with a packed matrix W.

    Args:
        x: (..., inputs), any floating dtype.
        matrix: (outputs, inputs), of :func:`pack`; or a plain float32 matrix, which the kernel for few rows reads in
            two thirds of PyTorch's time.
        bias: (outputs,).
        path: "reference" (unpack, then multiply) or "native" (a CPU's kernel for few rows) to force
            a path, "auto" for native where it is faster, None for the environment's choice.

    Returns:
        (..., outputs) in the dtype of x; half precision is multiplied in float32 and rounded once.

    Raises:
        ValueError: for an unknown path.
        RuntimeError, TypeError: where "native" is forced and cannot run.
    """
    dtype = torch.promote_types(x.dtype, torch.float32)
    wide_x, wide_bias = x.to(dtype), None if bias is None else bias.to(dtype)
    if PATHS.choose(path, x, matrix) == "native":
        rows = wide_x.reshape(math.prod(x.shape[:-1]), x.size(-1))
        y = native.operators.packed_linear(rows, matrix.data, matrix.scale, wide_bias)
        return y.view(*x.shape[:-1], matrix.data.size(0)).to(x.dtype)
    return F.linear(wide_x, unpack(matrix, dtype), wide_bias).to(x.dtype)


def _register(namespace: str) -> None:
    def shapes(x: Tensor, weight: Tensor, scale: Optional[Tensor], bias: Optional[Tensor]) -> Tensor:
        return x.new_empty(x.size(0), weight.size(0))

    torch.library.register_fake(f"{namespace}::packed_linear")(shapes)


native.register(_register)
count(packed_linear=lambda x, weight, *rest: map_operations(x[0], weight))
