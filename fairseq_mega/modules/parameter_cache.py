"""Values that depend on parameters alone, kept between the steps of a stream."""

from itertools import repeat
from operator import attrgetter, contains
from typing import Any, Callable, Dict, Hashable, Iterable, List, NamedTuple, Optional, Tuple

import torch
from torch import nn
from torch.nn.modules import module as of_all_modules
from torch.utils._pytree import tree_leaves

from fairseq_mega.ops.common.transforms import is_transformed

from .dropout import Dropout

VERSION, DTYPE = attrgetter("_version"), attrgetter("dtype")  # of tensors
KNOWN_PACKAGES = (__name__.partition(".")[0], torch.__name__)
TRAINING, RATES = attrgetter("training"), attrgetter("p", "retained")  # of modules and of a Dropout


class _Parts(NamedTuple):
    """The modules within a module, in a form that a step compares fast."""

    module: nn.Module
    children: List[Dict[str, Any]]  # of each module within it
    members: List[nn.Module]  # all of these children
    tensors: List[Dict[str, Any]]  # parameters and buffers of all
    hooks: List[Dict[int, Any]]  # of all, and those of every module
    attributes: List[Dict[str, Any]]  # of all
    dropouts: List[Dropout]
    parametrized: bool


class ParameterCache:
    """Values that one layer, or the trunk, keeps for the single steps of one stream; part of the stream's state.

    A value is cached while gradients are off, the module is in evaluation mode and its parameters are the same tensors
    at the same version. A write to ``parameter.data`` does not change the version: a new stream, and every call of
    several steps, therefore begins with an empty cache. The result of a parametrisation has no version, and so no value
    that depends on it is cached.
    """

    def __init__(self) -> None:
        self._values: Dict[Hashable, Tuple[Any, Any]] = {}
        self._parts: Dict[Hashable, _Parts] = {}

    def get(self, module: nn.Module, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return ``compute()``, which reads parameters of ``module`` itself, or the value kept under this key.

        The value is shared by all steps; the caller must not change it.
        """
        if self._may_keep(module):
            now = versions([module._parameters])
            if now is not None:
                return self._kept(key, now, compute)
        return compute()

    def get_of_all(self, module: nn.Module, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return a value as :meth:`get`; ``compute`` reads parameters and buffers of all modules within ``module``.

        The result of ``compute`` may also depend on whether a module is in training, drops anything, has hooks, or has
        a ``forward`` set on it.
        """
        if not self._may_keep(module):
            return compute()
        parts = self._parts.get(key)
        if parts is None or parts.module is not module or parts.members != _members(parts.children):
            parts = self._parts[key] = _parts_of(module)
            self._values.pop(key, None)  # of other modules, maybe with the same tensors
        now = None if parts.parametrized else versions(parts.tensors)
        if now is None:
            return compute()
        settings = [*map(TRAINING, parts.members), *map(RATES, parts.dropouts), *map(bool, parts.hooks)]
        settings += map(contains, parts.attributes, repeat("forward"))  # see is_watched
        return self._kept(key, now + settings, compute)

    def copy_from(self, other: "ParameterCache") -> None:
        """Copy the tensors of another cache of the same modules into those of this cache, which a CUDA graph reads."""
        for key, (_, value) in other._values.items():
            for old, new in zip(tree_leaves(self._values[key][1]), tree_leaves(value)):
                old.copy_(new)

    def _may_keep(self, module: nn.Module) -> bool:
        """Return whether nothing is compiled or trained, and no parameter is computed by a parametrisation."""
        if torch.compiler.is_compiling() or is_transformed():  # a tangent does not change a tensor's version
            return False
        if module.training or torch.is_grad_enabled():
            self._values.clear()  # an optimiser may write next
            return False
        return "parametrizations" not in module._modules  # the test of is_parametrized, which is a hundred times slower

    def _kept(self, key: Hashable, now: Any, compute: Callable[[], Any]) -> Any:
        before, value = self._values.get(key, (None, None))
        if before != now:
            value = compute()
            self._values[key] = now, value
        return value

    def __reduce__(self) -> Tuple[Any, ...]:
        return ParameterCache, ()  # neither copied nor pickled: another process has other parameters


def _members(children: List[Dict[str, Any]]) -> List[nn.Module]:
    return [child for own in children for child in own.values()]


def hooks_of(modules: Iterable[nn.Module]) -> List[Dict[int, Any]]:
    """Return the dictionaries of hooks around calls of modules, empty without hooks."""
    found = [of_all_modules._global_forward_hooks, of_all_modules._global_forward_pre_hooks]
    for part in modules:
        found += [part._forward_hooks, part._forward_pre_hooks]
    return found


def is_watched(module: nn.Module) -> bool:
    """Return whether a module or a part of it has hooks, or a ``forward`` from outside this package and torch.

    The ``forward`` is set on the object, or belongs to a subclass. Kernels that replace the module would ignore both.
    """
    parts = list(module.modules())
    return any(hooks_of(parts)) or any("forward" in vars(part) or not _is_known(type(part).forward) for part in parts)


def _is_known(forward: Any) -> bool:
    return forward.__module__.partition(".")[0] in KNOWN_PACKAGES


def _parts_of(module: nn.Module) -> _Parts:
    modules = list(module.modules())
    children: List[Dict[str, Any]] = [part._modules for part in modules]
    tensors: List[Dict[str, Any]] = [own for part in modules for own in (part._parameters, part._buffers) if own]
    dropouts = [part for part in modules if isinstance(part, Dropout)]
    parametrized = any("parametrizations" in own for own in children)
    attributes = [vars(part) for part in modules]
    return _Parts(module, children, _members(children), tensors, hooks_of(modules), attributes, dropouts, parametrized)


def versions(tensors: List[Dict[str, Any]]) -> Optional[List[Any]]:
    """Return a list that changes when a tensor is exchanged or written to; None for tensors of inference mode."""
    present = [x for own in tensors for x in own.values() if x is not None]
    try:
        return [*map(VERSION, present), *map(DTYPE, present), *map(torch.Tensor.data_ptr, present)]
    except RuntimeError:  # tensors of inference mode have no version
        return None
