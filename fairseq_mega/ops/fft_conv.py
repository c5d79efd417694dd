"""Convolution over time by FFT, for the paths ``torch_fft`` and ``native_fft`` of the EMA.

The compiled kernels work in shared memory, for CUDA tensors of up to 16384 steps. Unlike the work of the EMA's scan,
their work does not depend on the number of components.
"""

from typing import Any, Optional, Tuple

import torch
import torch.nn.functional as F
from torch import Tensor

from .common import native
from .common.dispatch import device_unsupported
from .common.gpus import gpu
from .common.operations import average_operations, count

SHORTEST_RING, LONGEST = 16, 16384


def _shared_memory(columns: int) -> int:
    return native.operators.ring_shared_memory(columns)


# as in gpu_unsupported: a number is not part of a compiled graph
_shared_memory._dynamo_marked_constant = True  # type: ignore[attr-defined]


def ring_unavailable(device: torch.device, length: int) -> Optional[str]:
    """Return the reason why the compiled kernels cannot convolve sequences of this length, or None."""
    problem = device_unsupported(device)
    if problem is not None:
        return problem
    if not native.has_kernel("ring_convolution", device):
        return f"there are no compiled kernels for tensors on {device.type}; use torch's FFT"
    if length > LONGEST:
        return f"it accepts up to {LONGEST} steps, found {length}"
    if device.type == "cuda":
        need = _shared_memory(ring_size(length))
        index = torch.cuda.current_device() if device.index is None else device.index
        have = gpu(index).shared_memory
        if have < need:
            found = f"{length} steps need {need / 1024:.0f} KiB of shared memory for a block"
            return f"{found}, {gpu(index).name} has {have / 1024:.0f}"
    return None


def ring_convolution(x: Tensor, ring: Tensor) -> Tensor:
    """Cyclic convolution by the compiled kernels: ``y[b, t, d] = sum_i x[b, i, d] ring[d, (t - i) mod 2S]``.

    Args:
        x: (B, L, D), float32, bfloat16 or float16, with any strides.
        ring: (D, 2S) in float32, S a power of two from 16 to 16384, at least L; see :func:`ring_kernel`.

    Returns:
        (B, L, D) in the dtype of x, computed in float32.

    Raises:
        RuntimeError: where the compiled kernels cannot be used for x, or the ring does not fit it.
    """
    reason = ring_unavailable(x.device, x.size(1))
    if reason is None and x.dtype not in native.DTYPES:
        reason = f"it computes float32, bfloat16 and float16, found {x.dtype}"
    if reason is not None:
        raise RuntimeError(f"the FFT convolution kernel cannot run: {reason}")
    return native.operators.ring_convolution(x, ring)


def ring_size(length: int) -> int:
    """Columns 2S of the ring for sequences of this length."""
    return 2 * max(SHORTEST_RING, 1 << max(0, length - 1).bit_length())


def ring_kernel(past: Tensor, future: Optional[Tensor], size: int) -> Tensor:
    """Return a kernel on a ring (D, size): the past at 0, 1, 2, ..., the future at -1, -2, ..., zeros between."""
    if future is None:
        return F.pad(past, (0, size - past.size(-1)))
    gap = size - past.size(-1) - future.size(-1)
    return torch.cat([F.pad(past, (0, gap)), future.flip(-1)], dim=-1)


def fft_convolution(x: Tensor, past: Tensor, future: Optional[Tensor]) -> Tensor:
    """Convolution over time of x (B, L, D) with a kernel at lags 0.. and, unless None, -1.., by torch's FFT."""
    reach = past.size(-1) - 1 if future is None else max(past.size(-1) - 1, future.size(-1))
    size = fast_fft_size(x.size(1) + reach)  # the ring is long enough: no lags overlap
    return _ring_convolution(x, past if future is None else ring_kernel(past, future, size), size)


def _ring_convolution(x: Tensor, ring: Tensor, size: int) -> Tensor:
    """Cyclic convolution over time of x (B, L, D) with ring (D, <= size), the first L outputs."""
    spectrum = torch.fft.rfft(x.transpose(1, 2), size) * torch.fft.rfft(ring, size)
    return torch.fft.irfft(spectrum, size)[..., : x.size(1)].transpose(1, 2)


def fast_fft_size(minimum: int) -> int:
    """The smallest even size of at least ``minimum`` whose only prime factors are 2, 3 and 5."""
    best = 1 << max(1, (minimum - 1).bit_length())
    for odd in (3, 5, 9, 15, 25, 27, 45, 75, 81, 125):
        candidate = 2 * odd
        while candidate < minimum:
            candidate *= 2
        best = min(best, candidate)
    return best


def _setup_context(ctx: Any, inputs: Tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _register(namespace: str) -> None:
    name = f"{namespace}::ring_convolution"

    def fake(x: Tensor, ring: Tensor) -> Tensor:
        return torch.empty_like(x, memory_format=torch.contiguous_format)

    def fake_backward(grad_y: Tensor, x: Tensor, ring: Tensor) -> Tuple[Tensor, Tensor]:
        return fake(x, ring), torch.empty_like(ring, memory_format=torch.contiguous_format)

    def backward(ctx: Any, grad_y: Tensor) -> Tuple[Tensor, Tensor]:
        x, ring = ctx.saved_tensors
        return getattr(torch.ops, namespace).ring_convolution_backward(grad_y, x, ring)

    torch.library.register_fake(name)(fake)
    torch.library.register_fake(f"{name}_backward")(fake_backward)
    native.register_gradients(name, backward, _setup_context)


native.register(_register)
count(
    ring_convolution=lambda x, ring: x[0] * average_operations(x[2], x[1]),
    ring_convolution_backward=lambda grad, x, ring: 2 * x[0] * average_operations(x[2], x[1]),
)
