"""Properties of GPUs, and the reasons why compiled kernels do not run on one; each GPU is examined once."""

import logging
from typing import Dict, NamedTuple, Optional

import torch

from . import native

logger = logging.getLogger(__name__)


class Gpu(NamedTuple):
    """Properties of a GPU that decide whether the compiled kernels run on it."""

    name: str
    capability: int  # ten times the compute capability: 80 for 8.0
    shared_memory: int  # bytes that a block may have


# by the number of the device
_GPUS: Dict[int, Gpu] = {}
_REASONS: Dict[int, Optional[str]] = {}


def gpu(index: int) -> Gpu:
    """Return the properties of the GPU of this number, as CUDA reports them."""
    if index not in _GPUS:
        found = torch.cuda.get_device_properties(index)
        shared = getattr(found, "shared_memory_per_block_optin", 48 << 10)  # some builds of torch lack it
        _GPUS[index] = Gpu(found.name, 10 * found.major + found.minor, shared)
    return _GPUS[index]


def gpu_unsupported(index: int) -> Optional[str]:
    """Return the reason why the compiled kernels do not run on a GPU, or None; the first call also logs it."""
    if index not in _REASONS:
        found = gpu(index)
        problem = None
        if found.capability < native.OLDEST_CAPABILITY:
            remedy = f"TORCH_CUDA_ARCH_LIST={found.capability / 10} builds for it"
            problem = f"they were built for {native.OLDEST_CAPABILITY / 10} and later ({remedy})"
        if problem is not None:
            capability = f"compute capability {found.capability / 10}"
            problem = f"they do not run on cuda:{index}, {found.name}, {capability}: {problem}"
            logger.warning(f"without the compiled kernels, more slowly: {problem}")
        _REASONS[index] = problem
    return _REASONS[index]


# The compiler must not trace the function; torch.compiler.assume_constant_result would import the whole compiler.
gpu_unsupported._dynamo_marked_constant = True  # type: ignore[attr-defined]
