"""Processes started by torchrun, by hand or by fairseq: all train together, or there is an error."""

import os
import sys
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from omegaconf import OmegaConf

from fairseq_mega.compat.processes import launching

VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
TWO = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}
NODES = {**TWO, "RANK": "5", "WORLD_SIZE": "8"}
TCP = "tcp://localhost:29501"


@pytest.fixture
def surroundings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment without a launcher, on a machine without GPUs."""
    for name in (*VARIABLES, *filter(lambda name: name.startswith("SLURM_"), os.environ)):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "argv", ["fairseq-train"])
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    return monkeypatch


def call(
    surroundings: pytest.MonkeyPatch, variables: Dict[str, str], given: Dict[str, Any], gpus: int = 0
) -> Tuple[Any, List[str]]:
    """The configuration that a command trains with, and how it does that."""
    for name, value in variables.items():
        surroundings.setenv(name, value)
    cfg = OmegaConf.structured(FairseqConfig)
    cfg.distributed_training.distributed_world_size = max(1, gpus)
    cfg.distributed_training.device_id = 0
    for name, value in given.items():
        cfg.distributed_training[name] = value
        surroundings.setattr(sys, "argv", [*sys.argv, f"--{name.replace('_', '-')}={value}"])
    done: List[str] = []
    surroundings.setattr(torch.multiprocessing, "spawn", lambda *_, nprocs, **__: done.append(f"starts {nprocs}"))
    surroundings.setattr(utils, "distributed_main", lambda *_: done.append("is one"))
    surroundings.setattr(launching.torch.cuda, "device_count", lambda: gpus)
    surroundings.setattr(launching.torch.cuda, "is_available", lambda: gpus > 0)
    utils.call_main(cfg, lambda cfg, **_: done.append("alone"))
    return cfg.distributed_training, done


@pytest.mark.parametrize(
    ("variables", "given", "how", "world", "rank"),
    [
        ({}, {}, "alone", 1, 0),
        ({**TWO, "RANK": "0", "WORLD_SIZE": "1"}, {}, "alone", 1, 0),
        (TWO, {}, "is one", 2, 1),
        (TWO, {"distributed_init_method": TCP}, "is one", 2, 1),
        (NODES, {}, "is one", 8, 5),
        ({}, {"distributed_world_size": 2}, "starts 2", 2, None),
        ({}, {"distributed_world_size": 2, "distributed_init_method": TCP, "distributed_rank": 1}, "is one", 2, 1),
    ],
)
def test_processes_on_a_cpu(
    surroundings: pytest.MonkeyPatch,
    variables: Dict[str, str],
    given: Dict[str, Any],
    how: str,
    world: int,
    rank: Optional[int],
) -> None:
    found, done = call(surroundings, variables, given)
    assert done == [how]
    assert (found.distributed_world_size, found.distributed_rank) == (world, rank)
    assert world == 1 or (found.distributed_backend == "gloo" and found.device_id == 0)


@pytest.mark.parametrize(
    ("variables", "given", "gpus", "world", "rank", "device"),
    [
        (TWO, {}, 2, 2, 1, 1),
        (NODES, {}, 4, 8, 5, 1),  # 4 to a node
        ({**NODES, "LOCAL_RANK": "3"}, {"distributed_world_size": 8}, 4, 8, 5, 3),
        ({**NODES, "LOCAL_RANK": "3"}, {}, 1, 8, 5, 0),  # each process sees its own GPU
        ({**TWO, "RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}, {}, 8, 1, 0, 0),
    ],
)
def test_processes_on_gpus(
    surroundings: pytest.MonkeyPatch,
    variables: Dict[str, str],
    given: Dict[str, Any],
    gpus: int,
    world: int,
    rank: int,
    device: int,
) -> None:
    found, done = call(surroundings, variables, given, gpus)
    assert done == ["is one"]
    assert (found.distributed_world_size, found.distributed_rank, found.device_id) == (world, rank, device)
    assert (found.distributed_backend, found.distributed_init_method) == ("nccl", "env://")


def test_another_number_than_that_of_the_launcher_is_refused(surroundings: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="--distributed-world-size 4"):
        call(surroundings, TWO, {"distributed_world_size": 4})


@pytest.mark.parametrize(("given", "world"), [([], 1), (["--distributed-world-size", "2"], 2)])
def test_gpus_do_not_count_on_a_cpu(given: List[str], world: int) -> None:
    parser = fairseq_options.get_training_parser()
    parser.set_defaults(distributed_world_size=8)  # of a machine with eight GPUs
    words = ["data", "--task", "translation", "--arch", "transformer_tiny", "--cpu", *given]
    assert fairseq_options.parse_args_and_arch(parser, words).distributed_world_size == world


@pytest.mark.parametrize("command", ["generation", "interactive_generation", "eval_lm", "validation"])
def test_one_process_beside_several_gpus(command: str) -> None:
    """fairseq-generate translates as many parts of a data set as there are processes, and gives the first of them."""
    words = ["data", "--task", "language_modeling" if command == "eval_lm" else "translation"]
    parsers = [getattr(fairseq_options, f"get_{command}_parser")() for _ in range(2)]
    parsers[0].set_defaults(distributed_world_size=8)  # of a machine with eight GPUs
    assert fairseq_options.parse_args_and_arch(parsers[0], words).distributed_world_size == 1
    with pytest.raises(ValueError, match="--distributed-world-size"):
        fairseq_options.parse_args_and_arch(parsers[1], [*words, "--distributed-world-size", "2"])
