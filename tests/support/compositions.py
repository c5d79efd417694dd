"""fairseq's configurations composed from parts that were composed before: half of the time of a tiny training."""

import copy
from functools import lru_cache
from typing import Any, Dict, List, Sequence, Tuple

from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.experimental import compose
from omegaconf import DictConfig, OmegaConf

from fairseq_mega.compat.versions.imports import import_fairseq


@lru_cache(maxsize=None)
def parsed(override: str) -> Override:
    return OverridesParser.create().parse_override(override)


class Compositions:
    """Compose as hydra does, which takes a task, a model and so on, and then sets one value after the other.

    The first step, for the same choices, is taken once in a process, as is the parsing of a value. Where a value cannot
    be set hydra does it all, and has the word.
    """

    def __init__(self) -> None:
        self.hydras = compose
        self.kept: Dict[Tuple[Any, ...], Tuple[DictConfig, List[Any]]] = {}

    def compose(self, config_name: str, overrides: Sequence[str], strict: bool) -> DictConfig:
        choices = [override for override in overrides if "." not in override.partition("=")[0]]
        # A name can be registered anew, with another node.
        groups = (ConfigStore.instance().repo.get(choice.partition("=")[0], {}) for choice in choices)
        nodes = [group.get(f"{choice.partition('=')[2]}.yaml") for choice, group in zip(choices, groups)]
        key = (config_name, *choices, *map(id, nodes))
        if key not in self.kept:
            self.kept[key] = self.hydras(config_name, overrides=choices, strict=strict), nodes
        composed = copy.deepcopy(self.kept[key][0])
        values = [override for override in overrides if override not in choices]
        try:
            OmegaConf.set_struct(composed, True)
            ConfigLoaderImpl._apply_overrides_to_config([parsed(value) for value in values], composed)
        except Exception:
            return self.hydras(config_name, overrides=overrides, strict=strict)
        OmegaConf.set_struct(composed, strict)
        return composed


def keep() -> None:
    """Let this process compose so."""
    import_fairseq()  # quietly, and without what takes long
    from fairseq.dataclass import utils

    utils.compose = Compositions().compose
