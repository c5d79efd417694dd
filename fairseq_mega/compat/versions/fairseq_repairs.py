"""Repair what fairseq does with the installed versions of hydra, NumPy and Python."""

import types
from typing import Any, Callable

import numpy as np

from fairseq_mega.compat.patching import ModuleWith, around

Original = Callable[..., Any]


def keep_one_store() -> None:
    """Share hydra's store between copies of its sources: composing a configuration takes a quarter of the time.

    The process has one store, which copies the entries that it loads.
    """
    from hydra.core.config_store import ConfigStore

    ConfigStore.__deepcopy__ = lambda store, memo: store


@around("fairseq.dataclass.utils", "_override_attr")
def keep_references(original: Original, sub_node: str, data_class: Any, args: Any) -> Any:
    """Keep a missing switch that follows another option, such as sentence_avg: fairseq switches it on.

    It calls bool() on the default, the text ``${optimization.sentence_avg}``, for a checkpoint or a command without
    the option.
    """
    found = original(sub_node, data_class, args)
    options = getattr(data_class, "__dataclass_fields__", {})
    kept = [
        f"{sub_node}.{name}="
        for name, option in options.items()
        if not hasattr(args, name) and str(option.default).startswith("${")
    ]
    return [override for override in found if not override.startswith(tuple(kept))]


def restore_removed_numpy_names() -> None:
    """Restore the name np.compat.long, which NumPy 2 removed, for --sample-break-mode eos, without changing numpy."""
    from fairseq.data import token_block_dataset

    if not hasattr(np, "compat"):
        token_block_dataset.np = ModuleWith(np, compat=types.SimpleNamespace(long=np.int64))
