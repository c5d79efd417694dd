"""Wrap or replace functions of fairseq wherever it holds them, and modules as one of its own modules sees them."""

import functools
import inspect
import sys
import types
import typing

WRAPPERS = "wrappers_of_fairseq_mega"  # attribute of a wrapped function


class ModuleWith(types.ModuleType):
    """A module with some of its names replaced, for those who are to see it so; the module itself stays as it is."""

    def __init__(self, original: types.ModuleType, **replaced: typing.Any) -> None:
        super().__init__(original.__name__)
        self.__dict__.update(replaced, _original=original)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(self._original, name)


def wrap(owner: typing.Any, name: str, wrapper: typing.Callable) -> None:
    """Replace a function by ``wrapper(original, *args, **kwargs)``; a second call changes nothing.

    Args:
        owner: the class, or the module of fairseq, that has the function. A module's is replaced wherever a loaded
            module of fairseq holds it.
        name: of the function.
        wrapper: by its name it is known whether the function is wrapped already.
    """
    original = getattr(owner, name)
    replacement = wrapped(original, wrapper)
    if replacement is original:
        return
    if isinstance(owner, types.ModuleType):
        replace_in_fairseq(name, original, replacement)
    elif isinstance(inspect.getattr_static(owner, name), staticmethod):
        setattr(owner, name, staticmethod(replacement))
    else:
        setattr(owner, name, replacement)


def wrapped(original: typing.Callable, wrapper: typing.Callable) -> typing.Callable:
    """A function that ``wrapper`` answers for, see :func:`wrap`; ``original`` where it does so already."""
    known = getattr(original, WRAPPERS, ())
    if wrapper.__name__ in known:
        return original

    @functools.wraps(original, updated=())
    def answer(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        return wrapper(original, *args, **kwargs)

    setattr(answer, WRAPPERS, (*known, wrapper.__name__))
    return answer


def replace_in_fairseq(name: str, original: typing.Callable, replacement: typing.Callable) -> None:
    """Put `replacement` wherever a loaded fairseq module holds `original`, imported by name or not."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
            setattr(module, name, replacement)


def globals_of_training() -> typing.Dict[str, typing.Any]:
    """Names of the module of fairseq-train that is running: fairseq_cli.train, or __main__ with ``python -m``."""
    frame: typing.Optional[types.FrameType] = sys._getframe()
    while frame is not None:
        if {"should_stop_early", "validate_and_save", "train"} <= frame.f_globals.keys():
            return frame.f_globals
        frame = frame.f_back
    return {}
