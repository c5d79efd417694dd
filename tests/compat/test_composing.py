"""fairseq's configurations are composed from one store, which they leave as it is."""

import copy
from argparse import Namespace
from typing import Dict, List

import pytest
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.config_store import ConfigStore


def composed(rate: str) -> List[float]:
    given = ["data", "--task", "translation", "--arch", "mega", "--lr-scheduler", "inverse_sqrt", "--lr", rate]
    parsed = options.parse_args_and_arch(options.get_training_parser(), given)
    return list(convert_namespace_to_omegaconf(parsed).lr_scheduler.lr)


def test_the_store_is_not_copied() -> None:
    store = ConfigStore.instance()
    assert copy.deepcopy([store])[0] is store


def test_one_configuration_is_not_the_next_ones_default() -> None:
    node = copy.deepcopy(ConfigStore.instance()._load("lr_scheduler/inverse_sqrt.yaml").node)
    assert [composed(rate) for rate in ("0.25", "0.5", "0.25")] == [[0.25], [0.5], [0.25]]
    assert ConfigStore.instance()._load("lr_scheduler/inverse_sqrt.yaml").node == node


@pytest.mark.parametrize("given", [{}, {"sentence_avg": False}, {"sentence_avg": True}])
def test_a_switch_that_follows_another_one(given: Dict[str, bool]) -> None:
    """Also in a checkpoint without the option, such as a converted one: its loss is that of a token."""
    options = Namespace(criterion="cross_entropy", task="translation", arch="mega", **given)
    cfg = convert_namespace_to_omegaconf(options)
    assert cfg.criterion.sentence_avg is cfg.optimization.sentence_avg is given.get("sentence_avg", False)
