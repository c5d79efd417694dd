"""Compose fairseq's configuration without a copy of every registered one, a quarter of the time that hydra took.

Encoders that have no options of their own, as ``--bpe characters``, get the place in it that fairseq forgot.
"""

import typing

if typing.TYPE_CHECKING:
    from hydra.core.config_store import ConfigStore


def keep_one_store() -> None:
    """Make a copy of hydra's sources share the store: it is one for the process, and copies what is loaded from it."""
    from hydra.core.config_store import ConfigStore

    ConfigStore.__deepcopy__ = _itself


def _itself(store: "ConfigStore", memo: typing.Dict[int, typing.Any]) -> "ConfigStore":
    return store


def store_encoders_without_options() -> None:
    """Make --bpe and --tokenizer accept each encoder that --help lists: fairseq looks for settings of them all."""
    from fairseq.data import encoders  # noqa: F401  # which registers them
    from fairseq.dataclass import FairseqDataclass
    from fairseq.registry import REGISTRIES
    from hydra.core.config_store import ConfigStore

    for kind in ("bpe", "tokenizer"):
        with_options = REGISTRIES[kind]["dataclass_registry"]
        for name in REGISTRIES[kind]["registry"].keys() - with_options.keys():
            with_options[name] = FairseqDataclass
            ConfigStore.instance().store(name=name, group=kind, node=FairseqDataclass(name), provider="fairseq")
