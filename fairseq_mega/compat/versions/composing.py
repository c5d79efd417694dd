"""Compose fairseq's configuration without copying every registered configuration, in a quarter of hydra's time."""

import typing

from fairseq_mega.compat.patching import wrap

if typing.TYPE_CHECKING:
    from hydra.core.config_store import ConfigStore


def keep_one_store() -> None:
    """Share hydra's store between copies of its sources: the process has one store, which copies loaded entries."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.__deepcopy__ = _itself


def _itself(store: "ConfigStore", memo: typing.Dict[int, typing.Any]) -> "ConfigStore":
    return store


def keep_references() -> None:
    """Keep a missing switch that follows another option, such as sentence_avg: fairseq switches it on.

    It calls bool() on the default, the text ``${optimization.sentence_avg}``, for a checkpoint or a command without
    the option.
    """
    from fairseq.dataclass import utils

    wrap(utils, "_override_attr", _without_references)


def _without_references(
    original: typing.Callable, sub_node: str, data_class: typing.Any, args: typing.Any
) -> typing.Any:
    found = original(sub_node, data_class, args)
    options = getattr(data_class, "__dataclass_fields__", {})
    kept = [
        f"{sub_node}.{name}="
        for name, option in options.items()
        if not hasattr(args, name) and str(option.default).startswith("${")
    ]
    return [override for override in found if not override.startswith(tuple(kept))]
