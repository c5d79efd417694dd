"""Repair what fairseq does with the installed versions of hydra, NumPy and Python."""

import types
import typing

import numpy as np

from fairseq_mega.compat.patching import around

Original = typing.Callable[..., typing.Any]


def keep_one_store() -> None:
    """Share hydra's store between copies of its sources: composing a configuration takes a quarter of the time.

    The process has one store, which copies the entries that it loads.
    """
    from hydra.core.config_store import ConfigStore

    ConfigStore.__deepcopy__ = lambda store, memo: store


@around("fairseq.dataclass.utils", "_override_attr")
def keep_references(original: Original, sub_node: str, data_class: typing.Any, args: typing.Any) -> typing.Any:
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


@around("fairseq.tasks.fairseq_task", "StatefulContainer.__getattr__")
def copy_states_of_tasks(original: Original, self: typing.Any, name: str) -> typing.Any:
    """Make the state of a task copyable, as a part of what ``from_pretrained`` returns.

    A copy is empty at first, and fairseq looks up its attributes in a dictionary that it looks up in the same way.
    """
    if "_state" not in vars(self):
        raise AttributeError(name)
    return original(self, name)


class _NumpyWithRemovedNames(types.ModuleType):
    """numpy with np.compat.long and percentile(interpolation=), which fairseq's data modules use."""

    compat = types.SimpleNamespace(long=np.int64)

    @staticmethod
    def percentile(*args: typing.Any, interpolation: typing.Optional[str] = None, **kwargs: typing.Any) -> typing.Any:
        """Pass `interpolation` by its present name, `method`."""
        if interpolation is not None:
            kwargs["method"] = interpolation
        return np.percentile(*args, **kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(np, name)


def restore_removed_numpy_names() -> None:
    """Restore names that NumPy 2 removed in three fairseq modules, without changing numpy.

    --sample-break-mode eos and --num-batch-buckets require these names.
    """
    if hasattr(np, "compat"):
        return
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

    for module in (data_utils, language_pair_dataset, token_block_dataset):
        if not isinstance(module.np, _NumpyWithRemovedNames):
            module.np = _NumpyWithRemovedNames("numpy")
