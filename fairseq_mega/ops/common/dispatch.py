"""The paths of an operator: one description chooses the path of a call, and explains why another path cannot run.

    PATHS = Operator("gate", Path("reference"), Path("native", kernels_unavailable, native.DTYPES))
    ...
    if PATHS.choose(path, x) == "native":

Paths are called ``reference`` (the definition), ``torch...`` (other arrangements in PyTorch), ``native...`` (the
compiled kernels) and ``triton`` (kernels that Triton compiles when they first run). A caller forces one by its argument
``path``, a user by FAIRSEQ_MEGA_PATHS: ``reference`` or ``native`` for all operators, ``ema=torch_fft,attention=torch``
for some, ``reference,gate=auto`` for all but one.
"""

import os
from functools import lru_cache
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from . import native
from .gpus import gpu_unsupported
from .transforms import PATHS_VARIABLE, transform_unsupported

VARIABLE = PATHS_VARIABLE
BLANKETS = ("auto", "reference", "native")

OPERATORS = (
    *("activation", "attention", "cross_entropy", "decoding", "dropout", "ema", "ema_coefficients", "gate", "linear"),
    *("norm", "packed_linear", "query_key", "rotary", "timestep_norm"),
)


def always_available(*call: Any) -> Optional[str]:
    """Return None: the path runs on any tensors."""
    return None


def always(*call: Any) -> bool:
    """Return True, the preference of a path that is chosen wherever it runs."""
    return True


class Path(NamedTuple):
    """One way to compute an operator; its functions receive the arguments ``call`` of :meth:`Operator.choose`."""

    name: str
    unavailable: Callable[..., Optional[str]] = always_available  # the reason why the path cannot run, or None
    dtypes: Tuple[torch.dtype, ...] = ()  # of the call's first tensor; empty: any
    suits: Callable[..., bool] = always  # whether the automatic choice prefers the path where it runs


class PathUnavailableError(RuntimeError):
    """A forced path cannot run on these tensors; the message has the reason."""


class Operator:
    """An operator and its paths.

    Args:
        name: one of OPERATORS.
        paths: from the plainest to the fastest; the first one is the reference, which runs on any tensors. The
            automatic choice is the last one that can run and prefers the call.
    """

    def __init__(self, name: str, *paths: Path) -> None:
        self.name = name
        self.paths = {path.name: path for path in paths}
        self.names = tuple(self.paths)
        self._fastest_first = paths[::-1]

    def forced(self, path: Optional[str] = None) -> str:
        """Return the name of the path in the argument or, where it is None, in the environment; else "auto".

        Raises:
            ValueError: for an unknown name, or a variable that cannot be read.
        """
        source = f"argument `path`; {VARIABLE} where it is None"
        if path is None:
            path, source = _from_environment(self.name)
        if path != "auto" and path not in self.paths:
            choices = ", ".join(("auto", *self.names))
            raise ValueError(f"unknown {self.name} path {path!r} ({source}): choose from {choices}")
        return path

    def choose(self, path: Optional[str], *call: Any) -> str:
        """Return the name of the path that computes a call.

        Args:
            path: as in :meth:`forced`.
            call: arguments of the paths' ``unavailable`` and ``suits``; the first is a tensor.

        Raises:
            ValueError: as :meth:`forced`.
            PathUnavailableError: if a forced path cannot run on these tensors.
            TypeError: if a forced path does not compute their dtype.
        """
        name = self.forced(path)
        if name == "auto":
            return self._automatic(*call)
        chosen = self.paths[name]
        problem = chosen.unavailable(*call)
        if problem is not None:
            raise PathUnavailableError(f"{self.name} path {name!r} cannot run: {problem}")
        if not _computes(chosen, call[0]):
            *others, last = (str(dtype).replace("torch.", "") for dtype in chosen.dtypes)
            computed = f"{', '.join(others)} and {last}" if others else last
            raise TypeError(f"{self.name} path {name!r} computes {computed}, found {call[0].dtype}")
        return name

    def _automatic(self, *call: Any) -> str:
        for path in self._fastest_first:
            if path.suits(*call) and _computes(path, call[0]) and path.unavailable(*call) is None:
                return path.name
        raise AssertionError(f"{self.name}: the reference cannot run")


def _computes(path: Path, tensor: Tensor) -> bool:
    return not path.dtypes or tensor.dtype in path.dtypes


def _from_environment(operator: str) -> Tuple[str, str]:
    """Return the environment's path, or "auto", and the variable that sets it."""
    text = os.environ.get(VARIABLE)
    path = _entries(text).get(operator, "auto") if text else "auto"
    return path, f"{VARIABLE}={text}"


# The compiler treats the environment as a constant, see gpus.py.
_from_environment._dynamo_marked_constant = True  # type: ignore[attr-defined]


@lru_cache(maxsize=8)  # read at every call of an operator
def _entries(text: str) -> Dict[str, str]:
    """Paths by operator from the value of FAIRSEQ_MEGA_PATHS; a later entry overrides an earlier one."""
    entries: Dict[str, str] = {}
    for entry in text.split(","):
        operator, equals, path = (part.strip() for part in entry.partition("="))
        if not equals and operator in BLANKETS:
            entries = dict.fromkeys(OPERATORS, operator)
        elif not equals:
            words = f"one word for all operators ({', '.join(BLANKETS)}) or operator=path"
            raise ValueError(f"{VARIABLE}={text}: {entry!r} is neither {words}")
        elif operator not in OPERATORS:
            choices = ", ".join(OPERATORS)
            raise ValueError(f"{VARIABLE}={text}: unknown operator {operator!r}, choose from {choices}")
        else:
            entries[operator] = path
    return entries


def device_unsupported(device: torch.device) -> Optional[str]:
    """Return the reason why the compiled kernels cannot run on a device now, with the remedy, or None."""
    if native.PROBLEM is not None:
        return f"it needs the compiled kernels, which cannot be used: {native.PROBLEM}; {native.REMEDY}"
    if device.type == "cpu":
        return transform_unsupported()
    if device.type != "cuda" or not native.HAS_CUDA:
        remedy = native.REMEDY.replace("=cpu", "=cuda")
        return f"it needs compiled kernels, and there are none for tensors on {device.type}; {remedy}"
    problem = gpu_unsupported(torch.cuda.current_device() if device.index is None else device.index)
    if problem is not None:
        return f"it needs the compiled kernels, which cannot be used: {problem}"
    return transform_unsupported()


def kernels_unavailable(x: Tensor, *call: Any) -> Optional[str]:
    """Return the reason why kernels compiled for every device of the extension cannot run, or None."""
    return device_unsupported(x.device)


def check_steps(operator: str, x: Tensor, width: int) -> None:
    """Raise ValueError unless x has the axes (B, L, D) of this width D."""
    if x.dim() != 3 or x.size(-1) != width:
        raise ValueError(f"{operator}: x must be (B, L, {width}), found {tuple(x.shape)}")
