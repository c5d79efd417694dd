"""Import fairseq without its messages."""

import contextlib
import importlib
import logging
import os
import sys
import types
from typing import Any, Callable, Iterator, Sequence, Set

from fairseq_mega.compat import startup

# Modules for metrics of one task and one criterion of fairseq; importing them takes a quarter of a command's start.
SLOW = ("sklearn", "sklearn.metrics", "scipy.stats")


def when_fairseq_is_imported(then: Callable[[], None]) -> None:
    """Call ``then`` when fairseq is imported, or now if it is imported already."""
    if "fairseq" in sys.modules:
        then()
    else:
        sys.meta_path.insert(0, startup.Watcher("fairseq", lambda module: then(), quiet_import))


def import_fairseq() -> None:
    """Import fairseq, and call the functions registered by :func:`when_fairseq_is_imported`.

    A module that imports fairseq and is imported by these functions must call this function first, else it would be
    imported only partly.
    """
    if "fairseq" in sys.modules:
        return
    if not any(getattr(finder, "name", None) == "fairseq" for finder in sys.meta_path):
        when_fairseq_is_imported(lambda: None)
    importlib.import_module("fairseq")


def remember_user_dir() -> None:
    """Record this package as an imported --user-dir: fairseq's log of it would stand above every dialogue."""
    from fairseq import utils

    known: Set[str] = getattr(utils.import_user_module, "memo", set())
    utils.import_user_module.memo = {*known, *map(os.path.abspath, sys.modules["fairseq_mega"].__path__)}


@contextlib.contextmanager
def quiet_import() -> Iterator[None]:
    """Import fairseq in the block without its import-time messages and the root handler that one of its models adds."""
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    try:
        with deferred(SLOW):
            yield
    finally:
        logging.disable(disabled)
    added = [handler for handler in root.handlers if handler not in handlers]
    for handler in added:
        root.removeHandler(handler)
    if added:
        root.setLevel(level)


class _Deferred(types.ModuleType):
    """Stand-in for a module in ``from ... import``; its functions import the module when they are called."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        submodule = sys.modules.get(f"{self.__name__}.{name}")
        if isinstance(submodule, _Deferred):
            return submodule

        def call(*args: Any, **kwargs: Any) -> Any:
            return getattr(importlib.import_module(self.__name__), name)(*args, **kwargs)

        return call


@contextlib.contextmanager
def deferred(names: Sequence[str]) -> Iterator[None]:
    """Replace these modules by stand-ins within the block, unless they are imported already."""
    stand_ins = {name: _Deferred(name) for name in names if name not in sys.modules}
    sys.modules.update(stand_ins)
    try:
        yield
    finally:
        for name in stand_ins:
            del sys.modules[name]
