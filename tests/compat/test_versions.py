"""Repairs that make fairseq run with the installed torch, NumPy and hydra."""

import copy
from argparse import Namespace
from typing import Dict, List

import numpy as np
import pytest
import torch
from fairseq import options
from fairseq.data.token_block_dataset import TokenBlockDataset
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from hydra.core.config_store import ConfigStore

import fairseq_mega  # noqa: F401  # repairs fairseq


def test_numpy_itself_is_untouched() -> None:
    if int(np.__version__.split(".")[0]) < 2:
        pytest.skip("NumPy 1 has these names itself")
    assert not hasattr(np, "compat") and not hasattr(np, "int")


def test_sentence_blocks() -> None:
    tokens = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
    blocks = TokenBlockDataset(tokens, [3, 2], None, pad=1, eos=2, break_mode="eos")
    assert [block.tolist() for block in (blocks[0], blocks[1])] == [[5, 6, 2], [7, 2]]


def composed(rate: str) -> List[float]:
    given = ["data", "--task", "translation", "--arch", "mega", "--lr-scheduler", "inverse_sqrt", "--lr", rate]
    parsed = options.parse_args_and_arch(options.get_training_parser(), given)
    return list(convert_namespace_to_omegaconf(parsed).lr_scheduler.lr)


def test_one_configuration_is_not_the_next_ones_default() -> None:
    """The store of configurations is not copied, and what is composed leaves it as it is."""
    store = ConfigStore.instance()
    assert copy.deepcopy([store])[0] is store
    node = copy.deepcopy(store._load("lr_scheduler/inverse_sqrt.yaml").node)
    assert [composed(rate) for rate in ("0.25", "0.5", "0.25")] == [[0.25], [0.5], [0.25]]
    assert store._load("lr_scheduler/inverse_sqrt.yaml").node == node


@pytest.mark.parametrize("given", [{}, {"sentence_avg": False}, {"sentence_avg": True}])
def test_a_switch_that_follows_another_one(given: Dict[str, bool]) -> None:
    """Also in a checkpoint without the option, such as a converted one: its loss is that of a token."""
    options = Namespace(criterion="cross_entropy", task="translation", arch="mega", **given)
    cfg = convert_namespace_to_omegaconf(options)
    assert cfg.criterion.sentence_avg is cfg.optimization.sentence_avg is given.get("sentence_avg", False)
