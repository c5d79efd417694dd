"""Configurations composed from kept parts are hydra's."""

from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, List

import pytest
from fairseq import options
from fairseq.dataclass import FairseqDataclass, utils
from hydra import initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from tests.support.compositions import Compositions
from tests.support.helpers import TINY_TRAINING

TRANSLATOR = ["--task", "translation", *TINY_TRAINING]
LINES = [
    ["data", *TRANSLATOR],
    ["it's, a=b {x}", *TRANSLATOR, "--lr", "1e-4,2e-4", "--max-update", "7", "--cpu", "--save-dir", 'a "b" 007'],
    ["data", "--task", "mega_language_modeling", "--arch", "megalodon_lm_11m", "--optimizer", "adam"],
    ["data", "--arch", "fconv", "--lr-scheduler", "inverse_sqrt", "--bf16"],  # a model without a dataclass
    ["data", *TRANSLATOR],
]


def configuration(line: List[str]) -> Dict[str, Any]:
    parsed = options.parse_args_and_arch(options.get_training_parser(), line)
    cfg = utils.convert_namespace_to_omegaconf(parsed)
    assert OmegaConf.is_struct(cfg)
    return {key: vars(value) if isinstance(value, Namespace) else value for key, value in cfg.items_ex(resolve=False)}


def compose_alone(compose: Any, override: str) -> DictConfig:
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(Path(utils.__file__).resolve().parents[1] / "config")):
        return compose("config", overrides=[override], strict=False)


def test_they_are_hydras(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Compositions()
    for line in LINES:
        found = []
        for compose in (kept.hydras, kept.compose):
            monkeypatch.setattr(utils, "compose", compose)
            found.append(configuration(line))
        assert found[0] == found[1]
    assert len(kept.kept) == 3


def test_a_name_that_is_registered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Another(FairseqDataclass):
        lr: float = 5.0

    monkeypatch.setattr(utils, "compose", Compositions().compose)
    assert "warmup_updates" in configuration(LINES[3])["lr_scheduler"]
    group = ConfigStore.instance().repo["lr_scheduler"]
    with monkeypatch.context() as patch:
        patch.setitem(group, "inverse_sqrt.yaml", None)
        ConfigStore.instance().store("inverse_sqrt", Another, "lr_scheduler")
        composed = compose_alone(utils.compose, "lr_scheduler=inverse_sqrt")
        assert set(composed.lr_scheduler) == {"_name", "lr"}
    assert "warmup_updates" in configuration(LINES[3])["lr_scheduler"]


def test_hydra_has_the_word_where_a_value_cannot_be_set() -> None:
    kept = Compositions()
    for override in ("optimization.max_update=many", "optimization.maximum=1"):
        said = []
        for compose in (kept.hydras, kept.compose):
            with pytest.raises(HydraException) as error:
                compose_alone(compose, override)
            said.append(str(error.value))
        assert said[0] == said[1] and "optimization.max" in said[0]
