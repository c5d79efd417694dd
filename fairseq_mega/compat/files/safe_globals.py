"""Types that torch.load may build from a checkpoint beyond tensors and plain containers: plain values alone.

torch calls every listed class and function with arguments from the file, and sets any state of their instances. NumPy's
own functions accept an address for an array. So each entry here is a guard of the same name, which accepts the contents
of fairseq's checkpoints and broadcasts and refuses the rest. Types that occur only as values cannot be called.
"""

import argparse
import collections
import functools
import math
import typing

import numpy as np
import torch

NUMERIC = ("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8")
# A pickle names the module that numpy had when it was written.
NUMPY_CORES = ("numpy.core.multiarray", "numpy._core.multiarray")
MOST_DIMENSIONS = 32


class RefusedContents(ValueError):
    """A file refers to something that no checkpoint of fairseq contains."""


class UnreadableFile(ValueError):
    """A file is damaged, or of another kind; the message names the file."""


def _as(module: str, name: str, entry: typing.Any) -> typing.Any:
    """Return `entry` with the name that pickles use for it."""
    entry.__module__, entry.__name__, entry.__qualname__ = module, name, name
    return entry


class _TypeName:
    """A type that pickles may name but not call."""

    def __init__(self, kind: typing.Any, module: str, name: str) -> None:
        self.kind = kind
        _as(module, name, self)

    def __call__(self, *args: typing.Any) -> typing.Any:
        raise RefusedContents(f"a call of {self.kind}")


class _Dtype:
    """numpy.dtype for numbers: holds the dtype, whose own __setstate__ could turn numbers into pointers."""

    dtype: np.dtype

    def __new__(cls, code: typing.Any = None, *rest: typing.Any) -> "_Dtype":
        code = code.decode("latin1") if isinstance(code, bytes) else code  # Python 2 wrote bytes
        if type(code) is not str or code not in NUMERIC:
            raise RefusedContents(f"an array of {code!r} where numbers are expected")
        self = super().__new__(cls)
        self.dtype = np.dtype(code)
        return self

    def __setstate__(self, state: typing.Any) -> None:
        _version, order, *rest = state
        if rest != [None, None, None, -1, -1, 0] or order not in ("<", ">", "|", "=", b"<", b">", b"|", b"="):
            raise RefusedContents("an array of more than plain numbers")
        letter: typing.Any = order.decode() if isinstance(order, bytes) else order
        self.dtype = self.dtype.newbyteorder(letter)


class _Array(np.ndarray):
    """An array in a checkpoint; it is saved, printed and computed with as a plain array."""

    def __new__(cls) -> "_Array":
        return super().__new__(cls, (0,), "b")

    def __setstate__(self, state: typing.Any) -> None:
        if "filled" in vars(self):  # a tensor may share the memory that NumPy would free
            raise RefusedContents("an array that is filled twice")
        self.filled = True
        _version, shape, dtype, by_columns, data = state
        if type(dtype) is not _Dtype or type(data) is not bytes:
            raise RefusedContents("an array of Python objects")
        if len(shape) > MOST_DIMENSIONS or any(type(size) is not int or size < 0 for size in shape):
            raise RefusedContents(f"an array of shape {shape!r}")
        itemsize = dtype.dtype.itemsize
        if math.prod(shape) * itemsize != len(data) or math.prod(max(size, 1) for size in shape) * itemsize >= 2**63:
            raise RefusedContents(f"an array of shape {shape} in {len(data)} bytes")
        checked: typing.Any = (1, tuple(shape), dtype.dtype, bool(by_columns), data)
        super().__setstate__(checked)

    def __reduce_ex__(self, protocol: typing.Any) -> typing.Any:
        return np.asarray(self).__reduce_ex__(protocol)

    def __array_wrap__(self, array: typing.Any, context: typing.Any = None, return_scalar: bool = False) -> typing.Any:
        return np.asarray(array)[()] if return_scalar else np.asarray(array)


def _reconstruct(kind: typing.Any, *_shape_and_code: typing.Any) -> _Array:
    if not isinstance(kind, _TypeName) or kind.kind is not np.ndarray:
        raise RefusedContents(f"numpy's _reconstruct of {kind!r}")
    return _Array()


def _scalar(dtype: typing.Any, data: typing.Any) -> np.generic:
    if type(dtype) is not _Dtype or type(data) is not bytes or len(data) != dtype.dtype.itemsize:
        raise RefusedContents("a numpy scalar that is not a number")
    return np.frombuffer(data, dtype.dtype)[0]


def _defaultdict(factory: typing.Any = None) -> collections.defaultdict:
    if factory is not None and not isinstance(factory, _TypeName):
        raise RefusedContents(f"a defaultdict that calls {factory!r}")
    return collections.defaultdict(factory and factory.kind)


def _guard(cls: typing.Any) -> type:
    """Return a subclass of `cls` for torch.load: built without arguments, and of class `cls` once its state is set."""
    own = {name for base in cls.__mro__ for name in vars(base).get("__annotations__", ())}

    def new(guard: type, *args: typing.Any) -> typing.Any:
        if args:
            raise RefusedContents(f"a call of {cls.__name__} with arguments")
        return cls.__new__(guard)

    def setstate(self: typing.Any, state: typing.Any) -> None:
        if type(state) is not dict or any(type(k) is not str or (hasattr(cls, k) and k not in own) for k in state):
            raise RefusedContents(f"a {cls.__name__} whose state is not a dictionary of values")
        state = {name: value.kind if isinstance(value, _TypeName) else value for name, value in state.items()}
        object.__setattr__(self, "__class__", cls)
        if hasattr(cls, "__setstate__"):
            self.__setstate__(state)
        else:
            vars(self).update(state)

    kind: typing.Any = type(cls)
    guard = kind(cls.__name__, (cls,), {"__slots__": (), "__new__": new, "__setstate__": setstate})
    return _as(cls.__module__, cls.__qualname__, guard)


@functools.lru_cache(maxsize=None)
def safe_globals() -> typing.List[typing.Any]:
    """List the guards of the types in fairseq's checkpoints and broadcasts beyond tensors and containers."""
    import omegaconf
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import base, nodes

    found: typing.List[typing.Any] = [
        _TypeName(kind, module, name)
        for kind, module, name in (
            (dict, "builtins", "dict"),
            (list, "builtins", "list"),
            (int, "builtins", "int"),
            (typing.Any, "typing", "Any"),
            (np.ndarray, "numpy", "ndarray"),
        )
    ]
    found += [_as("numpy", "dtype", _Dtype), _as("numpy", "array", _Array)]
    found.append(_as("collections", "defaultdict", _defaultdict))
    for core in NUMPY_CORES:
        found.append(_as(core, "_reconstruct", lambda *args: _reconstruct(*args)))
        found.append(_as(core, "scalar", lambda *args: _scalar(*args)))
    classes = [argparse.Namespace, omegaconf.DictConfig, omegaconf.ListConfig]
    classes += [getattr(base, name) for name in ("Metadata", "ContainerMetadata") if hasattr(base, name)]
    classes += [v for v in vars(nodes).values() if isinstance(v, type) and v.__module__ == nodes.__name__]
    if hasattr(distributed_utils, "_TensorPlaceholder"):
        classes.append(distributed_utils._TensorPlaceholder)
    return found + [_guard(cls) for cls in classes]


def allow_safe_globals() -> None:
    """Allow fairseq's own types in torch.load(weights_only=True), which refuses every class that is not listed."""
    torch.serialization.add_safe_globals(safe_globals())
