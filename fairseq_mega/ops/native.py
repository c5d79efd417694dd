"""The compiled extension: loading it once, where it can be used, and how to get it where it is missing."""

import hashlib
import logging
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

NAMESPACE = "fairseq_mega"
VARIABLE = "FAIRSEQ_MEGA_NATIVE"
MODES = ("auto", "off", "require")
REMEDY = "build it with: FAIRSEQ_MEGA_BUILD=cpu pip install --no-build-isolation --editable . (cuda for a GPU)"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

PACKAGE = Path(__file__).resolve().parent.parent
LIBRARY = PACKAGE / "_C.so"


def sources_hash() -> str:
    """Fingerprint of the C++ and CUDA sources beside this package, as setup.py computes it."""
    digest = hashlib.sha256()
    root = PACKAGE.parent
    for path in sorted(file.relative_to(root).as_posix() for file in (PACKAGE / "csrc").rglob("*.*")):
        digest.update(path.rsplit("/", 1)[-1].encode() + b"\0" + (root / path).read_bytes())
    return digest.hexdigest()[:16]


def _load() -> Optional[str]:
    """Load the extension; returns what stands in the way, or None."""
    mode = os.environ.get(VARIABLE, "auto")
    if mode not in MODES:
        raise ValueError(f"{VARIABLE}={mode}: choose from {', '.join(MODES)}")
    if mode == "off":
        return f"it is switched off by {VARIABLE}=off"
    problem = _try_to_load()
    if problem is not None and mode == "require":
        raise RuntimeError(f"{VARIABLE}=require, but the compiled kernels cannot be used: {problem}; {REMEDY}")
    return problem


def _try_to_load() -> Optional[str]:
    if not LIBRARY.exists():
        return f"{LIBRARY.name} is not beside the package"
    if not torch._C._dispatch_has_kernel(f"{NAMESPACE}::sources_hash"):  # a second copy would end the process
        try:
            torch.ops.load_library(str(LIBRARY))
        except OSError as error:
            return f"torch {torch.__version__} cannot load {LIBRARY.name} ({error})"
    if torch.ops.fairseq_mega.sources_hash() != sources_hash():
        return f"{LIBRARY.name} was built from other sources than those beside it"
    return None


PROBLEM = _load()
HAS_CUDA = PROBLEM is None and torch.ops.fairseq_mega.has_cuda()
# What the CUDA kernels ask of a GPU: ten times its compute capability, and bytes of shared memory for a block.
OLDEST_CAPABILITY = torch.ops.fairseq_mega.cuda_architecture() if PROBLEM is None else 0
SHARED_MEMORY = torch.ops.fairseq_mega.ema_scan_shared_memory() if PROBLEM is None else 0

# The operators of the extension: ``operators.ema_scan(...)``.
operators: Any = getattr(torch.ops, NAMESPACE)

# Each op's Python half (shapes for the compiler, gradients) as a function of the library's namespace.
_REGISTRATIONS: List[Callable[[str], None]] = []


def register(registration: Callable[[str], None]) -> None:
    """Run ``registration(namespace)`` for the extension, and later for every library given to :func:`register_all`."""
    _REGISTRATIONS.append(registration)
    if PROBLEM is None:
        registration(NAMESPACE)


def register_all(namespace: str) -> None:
    """Give another library of the same operators (the simulator of the tests) its Python half."""
    for registration in _REGISTRATIONS:
        registration(namespace)


def ops() -> Any:
    """The operators of the extension."""
    return operators


class Gpu(NamedTuple):
    """What decides whether the compiled kernels run on a GPU."""

    name: str
    capability: int  # ten times the compute capability: 80 for 8.0
    shared_memory: int  # bytes that a block may have


# By the number of the device: a GPU is asked once.
_GPUS: Dict[int, Gpu] = {}
_GPU_OBSTACLES: Dict[int, Optional[str]] = {}


def gpu(index: int) -> Gpu:
    """The GPU of that number, by CUDA's own account."""
    if index not in _GPUS:
        found = torch.cuda.get_device_properties(index)
        shared = getattr(found, "shared_memory_per_block_optin", SHARED_MEMORY)  # not every build of torch tells
        _GPUS[index] = Gpu(found.name, 10 * found.major + found.minor, shared)
    return _GPUS[index]


def _gpu_obstacle(index: int) -> Optional[str]:
    """What keeps the compiled kernels from running on a GPU, or None; the first time it is also logged."""
    if index not in _GPU_OBSTACLES:
        found = gpu(index)
        problem = None
        if found.shared_memory < SHARED_MEMORY:
            have, need = found.shared_memory / 1024, SHARED_MEMORY / 1024
            problem = f"it has {have:.0f} KiB of shared memory for a block, they need {need:.0f}"
        elif found.capability < OLDEST_CAPABILITY:
            remedy = f"TORCH_CUDA_ARCH_LIST={found.capability / 10} builds for it"
            problem = f"they were built for {OLDEST_CAPABILITY / 10} and later ({remedy})"
        if problem is not None:
            capability = f"compute capability {found.capability / 10}"
            problem = f"they do not run on cuda:{index}, {found.name}, {capability}: {problem}"
            logger.warning(f"without the compiled kernels, more slowly: {problem}")
        _GPU_OBSTACLES[index] = problem
    return _GPU_OBSTACLES[index]


# What torch.compiler.assume_constant_result does, which would import the whole compiler: it may not look into this.
_gpu_obstacle._dynamo_marked_constant = True  # type: ignore[attr-defined]


def obstacle(device: torch.device) -> Optional[str]:
    """What keeps the compiled kernels from running on a device, and the remedy, or None. A GPU is asked once."""
    if PROBLEM is not None:
        return f"the compiled kernels cannot be used: {PROBLEM}; {REMEDY}"
    if device.type == "cpu":
        return None
    if device.type != "cuda" or not HAS_CUDA:
        return f"there are no compiled kernels for tensors on {device.type}; {REMEDY.replace('=cpu', '=cuda')}"
    problem = _gpu_obstacle(torch.cuda.current_device() if device.index is None else device.index)
    return None if problem is None else f"the compiled kernels cannot be used: {problem}"


def usable(tensor: Tensor) -> bool:
    """Whether the compiled kernels work on this tensor: its device, and float32, bfloat16 or float16."""
    return tensor.dtype in DTYPES and obstacle(tensor.device) is None


def require(tensor: Tensor, path: str) -> None:
    """Make sure that the compiled kernels work on this tensor.

    Args:
        tensor: an input of the op.
        path: what was asked for, for the message.

    Raises:
        RuntimeError: where the extension is missing, or its kernels do not run on the tensor's device.
        TypeError: for a dtype the kernels do not compute.
    """
    problem = obstacle(tensor.device)
    if problem is not None:
        raise RuntimeError(f"{path} needs the compiled kernels: {problem}")
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{path} computes float32, bfloat16 and float16, found {tensor.dtype}")
