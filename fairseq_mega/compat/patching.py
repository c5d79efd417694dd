"""Wrap functions of fairseq in all its modules that refer to them, or replace names of a module for one of them."""

import functools
import importlib
import inspect
import sys
import types
from typing import Any, Callable, List, Tuple, TypeVar


class ModuleWith(types.ModuleType):
    """View of a module with some names replaced; the module itself is unchanged."""

    def __init__(self, original: types.ModuleType, **replaced: Any) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


Function = TypeVar("Function", bound=Callable)
_noted: List[Tuple[str, str, Callable]] = []


def around(module: str, name: str) -> Callable[[Function], Function]:
    """Decorate a wrapper of the function ``name`` of a module, or ``CLASS.name``; :func:`wrap_all` installs it."""

    def note(wrapper: Function) -> Function:
        _noted.append((module, name, wrapper))
        return wrapper

    return note


def wrap_all() -> None:
    """Install all wrappers that :func:`around` decorates."""
    for module, name, wrapper in _noted:
        *outer, function = name.split(".")
        owner: Any = importlib.import_module(module)
        wrap(getattr(owner, outer[0]) if outer else owner, function, wrapper)


def wrap(owner: Any, name: str, wrapper: Callable) -> None:
    """Replace a function by ``wrapper(original, *args, **kwargs)``.

    Args:
        owner: the class or the module that has the function. The function of a module is replaced in the module and
            wherever a loaded module of fairseq refers to it.
        name: of the function.
        wrapper: calls ``original``.
    """
    original = getattr(owner, name)

    @functools.wraps(original, updated=())
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return wrapper(original, *args, **kwargs)

    if isinstance(owner, types.ModuleType):
        for module_name, module in list(sys.modules.items()):
            if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
                setattr(module, name, wrapped)
        setattr(owner, name, wrapped)
    elif isinstance(inspect.getattr_static(owner, name), staticmethod):
        setattr(owner, name, staticmethod(wrapped))
    else:
        setattr(owner, name, wrapped)
