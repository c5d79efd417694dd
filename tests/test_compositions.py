"""Configurations composed from kept parts are hydra's."""

from argparse import Namespace
from typing import Any, Dict, List

import pytest
from fairseq import options
from fairseq.dataclass import utils
from omegaconf import OmegaConf

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


def test_they_are_hydras(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = Compositions()
    for line in LINES:
        found = []
        for compose in (kept.hydras, kept.compose):
            monkeypatch.setattr(utils, "compose", compose)
            found.append(configuration(line))
        assert found[0] == found[1]
    assert len(kept.kept) == 3
