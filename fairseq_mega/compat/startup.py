"""Repair modules of other packages as they are imported. This file requires the standard library alone.

Python 3.14 cannot import an unrepaired fairseq, and fairseq's own commands import fairseq before the plugin. An
environment made by scripts/setup.sh therefore loads this file at each start of Python, as ``fairseq_mega_startup``.
"""

import argparse
import contextlib
import importlib.abc
import importlib.machinery
import sys
import types
import typing

UNIONS = (typing.Union, getattr(types, "UnionType", None))  # of Optional[str], and of str | None
COMPLETION = "Install or uninstall shell completion"


class Watcher(importlib.abc.MetaPathFinder):
    """Finder of one module through the other finders; imports it within a context, then calls ``then(module)``."""

    def __init__(
        self,
        name: str,
        then: typing.Callable[[types.ModuleType], None],
        within: typing.Callable[[], typing.ContextManager[None]] = contextlib.nullcontext,
    ) -> None:
        self.name, self.then, self.within = name, then, within

    def find_spec(
        self, name: str, path: typing.Any = None, target: typing.Any = None
    ) -> typing.Optional[importlib.machinery.ModuleSpec]:
        """Find the watched module, and no other."""
        if name != self.name:
            return None
        others = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
        spec = next(filter(None, others), None)
        if spec is None or spec.loader is None:
            return spec
        loader: typing.Any = spec.loader
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            del loader.exec_module  # back to the one of its class
            with self.within():
                execute(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            self.then(module)

        loader.exec_module = exec_module
        return spec


def when_imported(name: str, then: typing.Callable[[types.ModuleType], None]) -> None:
    """Call ``then(module)`` as soon as a module is imported; at once if it is imported already."""
    if name in sys.modules:
        then(sys.modules[name])
    else:
        sys.meta_path.insert(0, Watcher(name, then))


def repair() -> None:
    """Make fairseq and hydra read their options on Python 3.14; a second call does nothing."""
    if sys.version_info >= (3, 14) and not getattr(sys, "fairseq_mega_repairs", False):
        sys.fairseq_mega_repairs = True  # type: ignore[attr-defined]  # this file may be loaded under both of its names
        when_imported("fairseq.dataclass.utils", read_unions)
        when_imported("hydra._internal.utils", write_help_as_text)


def read_unions(utils: types.ModuleType) -> None:
    """Make fairseq recognize ``str | None``, Python 3.14's form of ``Optional[str]``, as an optional type."""
    original = utils.interpret_dc_type

    def interpret_dc_type(field_type: typing.Any) -> typing.Any:
        choices = typing.get_args(field_type)
        if typing.get_origin(field_type) in UNIONS and type(None) in choices:
            return next(choice for choice in choices if choice is not type(None))
        return original(field_type)

    utils.interpret_dc_type = interpret_dc_type  # type: ignore[attr-defined]


def write_help_as_text(utils: types.ModuleType) -> None:
    """Replace the help of hydra's --shell-completion, an object that Python 3.14 refuses, by a string."""

    class Parser(argparse.ArgumentParser):
        def add_argument(self, *names: typing.Any, **options: typing.Any) -> argparse.Action:
            if not isinstance(options.get("help", ""), str):
                options["help"] = COMPLETION
            return super().add_argument(*names, **options)

    changed = types.ModuleType("argparse")
    vars(changed).update(vars(argparse), ArgumentParser=Parser)
    utils.argparse = changed  # type: ignore[attr-defined]


if __name__ == "fairseq_mega_startup":
    repair()
