"""The compiled extension: its loading, its operators, and the remedy where it is missing."""

import functools
import hashlib
import os
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Tuple, Type

import torch

from . import transforms

NAMESPACE = "fairseq_mega"
VARIABLE = "FAIRSEQ_MEGA_NATIVE"
MODES = ("auto", "off", "require")
LEVEL_VARIABLE = "FAIRSEQ_MEGA_CPU_LEVEL"
LEVELS = ("baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16")  # as in csrc/common/cpu_level.h
REMEDY = "build it with: FAIRSEQ_MEGA_BUILD=cpu pip install --no-build-isolation --editable . (cuda for a GPU)"
DTYPES = (torch.float32, torch.bfloat16, torch.float16)

PACKAGE = Path(__file__).resolve().parents[2]
LIBRARY = PACKAGE / "_C.so"


def sources_hash() -> str:
    """Return the fingerprint of the C++ and CUDA sources beside this package, as setup.py computes it."""
    digest = hashlib.sha256()
    root = PACKAGE.parent
    for path in sorted(file.relative_to(root).as_posix() for file in (PACKAGE / "csrc").rglob("*.*")):
        digest.update(path.rsplit("/", 1)[-1].encode() + b"\0" + (root / path).read_bytes())
    return digest.hexdigest()[:16]


def _load() -> Optional[str]:
    """Load the extension; return the reason why it cannot be used, or None."""
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


def _choose_cpu_level() -> None:
    """Run the kernels for CPUs at the level that the environment sets, by default the highest."""
    requested, levels = os.environ.get(LEVEL_VARIABLE), cpu_levels() or LEVELS
    if requested and requested not in levels:
        raise ValueError(f"{LEVEL_VARIABLE}={requested}: choose from {', '.join(levels)}")
    if PROBLEM is None:
        torch.ops.fairseq_mega.set_cpu_level(requested or levels[-1])


def cpu_levels() -> Tuple[str, ...]:
    """Return the instruction sets of this machine that the kernels are compiled for, lowest first; none without
    kernels.
    """
    return () if PROBLEM is not None else tuple(torch.ops.fairseq_mega.cpu_levels().split(","))


def cpu_level() -> Optional[str]:
    """Return the level of :func:`cpu_levels` at which the kernels run; None without the kernels."""
    return None if PROBLEM is not None else torch.ops.fairseq_mega.cpu_level()


def has_kernel(operator: str, device: torch.device) -> bool:
    """Return whether the library has an operator's kernel for a type of devices."""
    return _has_kernel(f"{NAMESPACE}::{operator}", device.type.upper())


@functools.lru_cache(maxsize=None)  # asked at every call of an operator
def _has_kernel(name: str, key: str) -> bool:
    has_any = torch._C._dispatch_has_kernel(name)  # else the next question is an error
    return has_any and torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


# The compiler treats the answer as a constant, see gpus.py.
has_kernel._dynamo_marked_constant = True  # type: ignore[attr-defined]


def reaches(level: str) -> bool:
    """Return whether the kernels run at this level of LEVELS or a higher one."""
    return PROBLEM is None and LEVELS.index(torch.ops.fairseq_mega.cpu_level()) >= LEVELS.index(level)


PROBLEM = _load()
HAS_CUDA = PROBLEM is None and torch.ops.fairseq_mega.has_cuda()
# Ten times the compute capability that the CUDA kernels require.
OLDEST_CAPABILITY = torch.ops.fairseq_mega.cuda_architecture() if PROBLEM is None else 0

_choose_cpu_level()


class Operators:
    """The operators of a library, ``operators.ema_scan(...)``: the one place that all calls of kernels pass.

    A call through torch's dispatcher to the Python function that was registered for gradients costs more than the
    kernel of a small tensor. Eager calls with gradients therefore call a function of autograd directly. A call under a
    transform raises RuntimeError, because torch would treat the results as constants.

    Args:
        namespace: of the library.
    """

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace

    def __getattr__(self, name: str) -> Any:
        found = getattr(getattr(torch.ops, self._namespace), name)
        found = _shortest(found.default, _FUNCTIONS.get(f"{self._namespace}::{name}"))
        setattr(self, name, found)
        return found


def _shortest(operator: Callable[..., Any], function: Optional[Type[torch.autograd.Function]]) -> Callable[..., Any]:
    def call(*arguments: Any, **named: Any) -> Any:
        if transforms.is_transformed():
            raise RuntimeError(f"{operator}: {transforms.transform_unsupported()}")
        eager = function is not None and torch.is_grad_enabled() and not torch.compiler.is_compiling() and not named
        if eager and any(isinstance(argument, torch.Tensor) and argument.requires_grad for argument in arguments):
            return function.apply(*arguments)  # type: ignore[union-attr]
        return operator(*arguments, **named)

    call.default = operator  # type: ignore[attr-defined]  # the name that it has in torch.ops
    return call


# Functions of operators with gradients, by "namespace::operator".
_FUNCTIONS: Dict[str, Type[torch.autograd.Function]] = {}

operators = Operators(NAMESPACE)


def register_gradients(
    name: str,
    backward: Callable[..., Any],
    setup_context: Callable[..., None],
    *,
    twice: bool = False,
    in_python: Optional[Tuple[Callable[..., Any], Callable[..., Any]]] = None,
) -> None:
    """Register the gradients of an operator, given as "namespace::operator".

    Args:
        name, backward, setup_context: as for torch.library.register_autograd.
        twice: whether ``backward`` can be differentiated, too. The derivative of a kernel cannot: torch would treat its
            gradients as constants, and so a second derivative is an error.
        in_python: the operator and ``backward`` as Python functions, which are called without torch's dispatcher.
    """

    def once(gradients: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(gradients)
        def checked(ctx: Any, *grads: Any) -> Any:
            if torch.is_grad_enabled():
                raise RuntimeError(
                    f"{name} has no second derivatives, which create_graph=True requires: {transforms.REMEDY}"
                )
            if in_python is not None and any(map(transforms.is_batched, grads)):
                raise RuntimeError(f"{name} has no gradients of several outputs at once: {transforms.REMEDY}")
            return gradients(ctx, *grads)

        return gradients if twice else checked

    torch.library.register_autograd(name, once(backward), setup_context=setup_context)
    namespace, _, short = name.partition("::")
    run, gradients = in_python or (getattr(getattr(torch.ops, namespace), short).default, backward)

    def forward(ctx: Any, *inputs: Any) -> Any:
        with torch._C._AutoDispatchBelowAutograd():
            output = run(*inputs)
        setup_context(ctx, inputs, output)
        return output

    methods = {"forward": staticmethod(forward), "backward": staticmethod(once(gradients))}
    _FUNCTIONS[name] = type(short, (torch.autograd.Function,), methods)


# Each op's Python half (shapes for the compiler, gradients) as a function of the library's namespace.
_REGISTRATIONS: List[Callable[[str], None]] = []


def register(registration: Callable[[str], None]) -> None:
    """Run ``registration(namespace)`` for the extension, and later for every library passed to :func:`register_all`."""
    _REGISTRATIONS.append(registration)
    if PROBLEM is None:
        registration(NAMESPACE)


def register_all(namespace: str) -> None:
    """Register the Python half for another library of the same operators (the simulator of the tests)."""
    for registration in _REGISTRATIONS:
        registration(namespace)
