"""Wrap or replace functions of fairseq in all modules that refer to them, or names of a module for one of them."""

import functools
import importlib
import inspect
import sys
import types
import typing

WRAPPERS = "wrappers_of_fairseq_mega"  # attribute of a wrapped function


class ModuleWith(types.ModuleType):
    """View of a module with some names replaced; the module itself is unchanged."""

    def __init__(self, original: types.ModuleType, **replaced: typing.Any) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._original, name)


Function = typing.TypeVar("Function", bound=typing.Callable)
_noted: typing.List[typing.Tuple[str, str, typing.Callable]] = []


def around(module: str, name: str) -> typing.Callable[[Function], Function]:
    """Decorate a wrapper of the function ``name`` of a module, or ``CLASS.name``; :func:`wrap_all` installs it."""

    def note(wrapper: Function) -> Function:
        _noted.append((module, name, wrapper))
        return wrapper

    return note


def wrap_all() -> None:
    """Install all wrappers that :func:`around` decorates."""
    for module, name, wrapper in _noted:
        *outer, function = name.split(".")
        owner: typing.Any = importlib.import_module(module)
        wrap(getattr(owner, outer[0]) if outer else owner, function, wrapper)


def wrap(owner: typing.Any, name: str, wrapper: typing.Callable) -> None:
    """Replace a function by ``wrapper(original, *args, **kwargs)``; a second call changes nothing.

    Args:
        owner: the class or the module that has the function. The function of a module is replaced in the module and
            wherever a loaded module of fairseq refers to it.
        name: of the function.
        wrapper: its name marks the function as wrapped.
    """
    original = getattr(owner, name)
    replacement = wrapped(original, wrapper)
    if replacement is original:
        return
    if isinstance(owner, types.ModuleType):
        replace_in_fairseq(name, original, replacement)
        setattr(owner, name, replacement)
    elif isinstance(inspect.getattr_static(owner, name), staticmethod):
        setattr(owner, name, staticmethod(replacement))
    else:
        setattr(owner, name, replacement)


def wrapped(original: typing.Callable, wrapper: typing.Callable) -> typing.Callable:
    """Return ``original`` wrapped by ``wrapper``, see :func:`wrap`; ``original`` itself if it is wrapped already."""
    known = getattr(original, WRAPPERS, ())
    if wrapper.__name__ in known:
        return original

    @functools.wraps(original, updated=())
    def answer(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return wrapper(original, *args, **kwargs)

    setattr(answer, WRAPPERS, (*known, wrapper.__name__))
    return answer


def replace_in_fairseq(name: str, original: typing.Callable, replacement: typing.Callable) -> None:
    """Replace `original` in every loaded fairseq module that refers to it, imported by name or not."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
            setattr(module, name, replacement)


def globals_of_training() -> typing.Dict[str, typing.Any]:
    """Return the globals of the running module of fairseq-train: fairseq_cli.train, or __main__ with ``python -m``."""
    frame: typing.Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if {"should_stop_early", "validate_and_save", "train"} <= frame.f_globals.keys():
            return frame.f_globals
        frame = frame.f_back
    return {}
