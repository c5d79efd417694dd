"""Processes started by torchrun, by hand or by fairseq: all train together, or there is an error."""

import functools
import importlib
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
from fairseq import options as fairseq_options
from fairseq.dataclass.configs import FairseqConfig
from fairseq.distributed import utils
from fairseq.tasks import TASK_REGISTRY
from omegaconf import OmegaConf

from fairseq_mega.compat.errors import is_users_error
from fairseq_mega.compat.processes import launching
from tests.support import helpers, processes, tiny_trainings

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
        ({"WORLD_SIZE": "1"}, {}, "alone", 1, 0),
        ({**TWO, "RANK": "0", "WORLD_SIZE": "1"}, {}, "alone", 1, 0),
        (TWO, {}, "is one", 2, 1),
        (TWO, {"distributed_world_size": 2}, "is one", 2, 1),
        (TWO, {"distributed_world_size": 2, "distributed_no_spawn": True}, "is one", 2, 1),
        (TWO, {"distributed_init_method": "env://"}, "is one", 2, 1),
        (TWO, {"distributed_init_method": TCP}, "is one", 2, 1),
        (NODES, {}, "is one", 8, 5),
        ({}, {"distributed_world_size": 2}, "starts 2", 2, None),
        ({}, {"distributed_world_size": 2, "distributed_port": 29501}, "starts 2", 2, None),
        ({}, {"distributed_world_size": 2, "distributed_init_method": TCP}, "starts 2", 2, None),
        ({}, {"distributed_world_size": 2, "distributed_init_method": TCP, "distributed_rank": 0}, "is one", 2, 0),
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
        (TWO, {}, 8, 2, 1, 1),
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


@pytest.mark.parametrize("gpus", [0, 8])
def test_slurm_starts_a_task_for_each_process(surroundings: pytest.MonkeyPatch, gpus: int) -> None:
    """Two nodes of eight tasks, of which this is the tenth; without GPUs as well."""
    surroundings.setattr(utils.subprocess, "check_output", lambda words: b"first\nsecond\n")
    surroundings.setattr(torch.cuda, "set_device", lambda device: None if gpus else pytest.fail("there is no GPU"))
    slurm = {"SLURM_STEP_NODELIST": "x", "SLURM_NNODES": "2", "SLURM_NTASKS_PER_NODE": "8"}
    given = {"distributed_world_size": 16, "distributed_port": 29500}
    found, done = call(surroundings, {**slurm, "SLURM_PROCID": "9", "SLURM_LOCALID": "1"}, given, gpus)
    assert done == ["is one"]
    assert (found.distributed_rank, found.device_id) == (9, 1 if gpus else 0)
    assert found.distributed_init_method == "tcp://first:29500"


def slurm(tasks: int, rank: int, nodes: int = 1) -> Dict[str, str]:
    """Variables of a process that srun started."""
    number = {"SLURM_NTASKS": str(tasks), "SLURM_NNODES": str(nodes), "SLURM_JOB_NODELIST": "x"}
    return {**number, "SLURM_JOB_ID": "7", "SLURM_PROCID": str(rank), "SLURM_LOCALID": "0"}


TOGETHER = {"distributed_world_size": 2, "distributed_port": 29500}
BY_SRUN = {"SLURM_STEP_NUM_TASKS": "2"}


@pytest.mark.parametrize(
    ("variables", "given", "how", "rank", "address"),
    [
        (slurm(2, 0), TOGETHER, "is one", 0, "localhost"),
        (slurm(2, 1), TOGETHER, "is one", 1, "localhost"),
        (slurm(2, 1, nodes=2), TOGETHER, "is one", 1, "first"),  # a task on each node
        ({**slurm(2, 1), **BY_SRUN}, TOGETHER, "is one", 1, "localhost"),
        (slurm(2, 1), {"distributed_world_size": 1}, "alone", 0, None),
        (slurm(1, 0), {}, "alone", 0, None),
        ({"SLURM_NTASKS": "2", "SLURM_JOB_ID": "7"}, {}, "alone", 0, None),  # a shell of salloc
        ({**slurm(2, 1), **TWO}, {}, "is one", 1, None),  # torchrun within srun
    ],
)
def test_processes_of_slurm_on_a_cpu(
    surroundings: pytest.MonkeyPatch,
    variables: Dict[str, str],
    given: Dict[str, Any],
    how: str,
    rank: int,
    address: Optional[str],
) -> None:
    surroundings.setattr(launching.subprocess, "check_output", lambda words: b"first\nsecond\n")
    found, done = call(surroundings, variables, given)
    assert (done, found.distributed_rank) == ([how], rank)
    if address is not None:
        assert (found.distributed_world_size, found.distributed_init_method) == (2, f"tcp://{address}:29500")


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize(
    ("given", "gpus"),
    [
        *(({}, gpus) for gpus in (0, 1, 2)),
        *(({"distributed_world_size": 2}, gpus) for gpus in (0, 1, 2)),
        *(({"distributed_port": 29500}, gpus) for gpus in (0, 1)),  # of two GPUs fairseq works out how many there are
    ],
)
def test_processes_of_slurm_do_not_train_alone(
    surroundings: pytest.MonkeyPatch, given: Dict[str, Any], rank: int, gpus: int
) -> None:
    with pytest.raises(ValueError, match="SLURM has 2 processes .* give --distributed-world-size 2 --distributed-port"):
        call(surroundings, {**slurm(2, rank), **BY_SRUN}, given, gpus)


def test_a_script_of_sbatch_trains_on_its_gpus(surroundings: pytest.MonkeyPatch) -> None:
    assert call(surroundings, slurm(2, 0), {}, gpus=2)[1] == ["starts 2"]


def test_nodes_that_scontrol_does_not_know(surroundings: pytest.MonkeyPatch) -> None:
    def fail(words: List[str]) -> bytes:
        raise FileNotFoundError("scontrol")

    surroundings.setattr(launching.subprocess, "check_output", fail)
    with pytest.raises(ValueError, match="--distributed-init-method tcp://HOST:PORT .* --distributed-rank"):
        call(surroundings, slurm(2, 1, nodes=2), TOGETHER)


@pytest.mark.parametrize(
    ("variables", "given", "said"),
    [
        ({"WORLD_SIZE": "2", "RANK": "0"}, {}, "lacks MASTER_ADDR, MASTER_PORT: set RANK, WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, {}, "lacks RANK, MASTER_ADDR"),
        ({}, {"distributed_init_method": "env://", "distributed_world_size": 2}, "lacks RANK, WORLD_SIZE"),
        ({**TWO, "WORLD_SIZE": "two"}, {}, "WORLD_SIZE is 'two'"),
        ({**TWO, "RANK": "-1"}, {}, "RANK is '-1'"),
        ({**TWO, "RANK": "2"}, {}, "ranks count from 0 to 1"),
        (TWO, {"distributed_world_size": 4}, "--distributed-world-size 4, and 2 processes were started"),
    ],
)
def test_refusals(
    surroundings: pytest.MonkeyPatch, variables: Dict[str, str], given: Dict[str, Any], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        call(surroundings, variables, given)


@pytest.mark.parametrize("command", ["train", "eval_lm", "validate", "interactive"])
def test_commands_are_known_by_their_file(command: str) -> None:
    """A command is recognised as __main__, and with the arguments that autocast binds to it."""
    name = importlib.import_module(f"fairseq_cli.{command}").main
    assert launching.command_of(name) == command
    assert launching.command_of(functools.partial(map, name, torch.device("cpu"))) == command
    assert launching.command_of(print) == ""


@pytest.mark.parametrize("command", ["eval-lm", "generate", "interactive"])
def test_commands_of_one_process(
    surroundings: pytest.MonkeyPatch, trainings: tiny_trainings.Trainings, command: str
) -> None:
    """Each process would print results of its own."""
    for name, value in TWO.items():
        surroundings.setenv(name, value)
    arguments = ["--path", "checkpoint.pt", "--cpu", "--task", "translation"]
    data = trainings.arguments("language model" if command == "eval-lm" else "translation")[0]
    with pytest.raises(ValueError, match=rf"fairseq-{command} works in one process, and 2 were started"):
        helpers.run_fairseq(command, [data, *arguments])


def test_tasks_of_srun_are_warned(surroundings: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Each has arguments of its own, perhaps."""
    for name, value in {**slurm(2, 1), **BY_SRUN}.items():
        surroundings.setenv(name, value)
    with caplog.at_level("WARNING", "fairseq_mega.compat.processes.launching"):
        launching.refuse_several_processes("fairseq-generate")
    assert "fairseq-generate works in one process, and srun started 2: " in caplog.text


@pytest.mark.parametrize("spelling", [["--local-rank=1"], ["--local_rank", "1"], ["--local-rank", "1"]])
def test_rank_of_the_launcher(spelling: List[str]) -> None:
    parser = fairseq_options.get_training_parser()
    given = ["data", "--task", "translation", "--arch", "transformer_tiny", *spelling]
    assert fairseq_options.parse_args_and_arch(parser, given).device_id == 1


@pytest.mark.parametrize(("given", "world"), [([], 1), (["--distributed-world-size", "2"], 2)])
def test_gpus_do_not_count_on_a_cpu(given: List[str], world: int) -> None:
    parser = fairseq_options.get_training_parser()
    parser.set_defaults(distributed_world_size=8)  # of a machine with eight GPUs
    words = ["data", "--task", "translation", "--arch", "transformer_tiny", "--cpu", *given]
    assert fairseq_options.parse_args_and_arch(parser, words).distributed_world_size == world


@pytest.mark.parametrize(
    ("command", "world"), [("generation", 1), ("interactive_generation", 1), ("eval_lm", 1), ("validation", 8)]
)
def test_one_process_beside_several_gpus(command: str, world: int) -> None:
    """fairseq-generate translates as many parts of a data set as there are processes, and gives the first of them."""
    words = ["data", "--task", "language_modeling" if command == "eval_lm" else "translation"]
    parser = getattr(fairseq_options, f"get_{command}_parser")()
    parser.set_defaults(distributed_world_size=8)  # of a machine with eight GPUs
    assert fairseq_options.parse_args_and_arch(parser, words).distributed_world_size == world
    if world == 1:
        with pytest.raises((SystemExit, ValueError)):
            fairseq_options.parse_args_and_arch(parser, [*words, "--distributed-world-size", "2"])


@pytest.mark.parametrize(
    ("last_line", "raised"),
    [
        ("ValueError: --chunk-parallel-size 3 does not divide", ValueError),
        ("FileExistsError: --save-dir a is in use", FileExistsError),
        ("ImportError: Please install fairscale", ImportError),
        ("RuntimeError: sizes differ", torch.multiprocessing.ProcessRaisedException),
    ],
)
def test_errors_of_processes_keep_their_words(last_line: str, raised: type) -> None:
    with pytest.raises(raised, match=last_line.partition(": ")[2]), launching.errors_of_processes():
        raise torch.multiprocessing.ProcessRaisedException(f"\n\n-- Process 1\nTraceback\n{last_line}\n", 1, 2)


@pytest.mark.parametrize(
    ("how", "told"),
    [("signal SIGKILL", "signal SIGKILL, possibly for lack of memory"), ("exit code 3", "exit code 3")],
)
def test_a_process_that_ends_without_a_word(how: str, told: str) -> None:
    with pytest.raises(ChildProcessError) as error, launching.errors_of_processes():
        raise torch.multiprocessing.ProcessExitedException(f"process 1 terminated with {how}", 1, 2, 3)
    assert is_users_error(error.value) and f"(process 1 terminated with {told})" in str(error.value)


def gather(rank: int) -> List[Any]:
    return utils.all_gather_list({"rank": rank, "loss": torch.tensor(0.5 * rank)}, group=torch.distributed.group.WORLD)


def test_processes_on_a_cpu_gather_what_they_logged(tmp_path: Path) -> None:
    both = [{"rank": 0, "loss": torch.tensor(0.0)}, {"rank": 1, "loss": torch.tensor(0.5)}]
    assert processes.run_group(gather, 2, tmp_path) == [both, both]


@pytest.mark.parametrize("task", ["translation", "language_modeling", "masked_lm", "lra-text", "lra-image"])
def test_empty_batches_of_fairseq_validate_count_nothing(task: str) -> None:
    """Batches that the processes do not divide leave an empty one to the last of them."""
    task_type: Any = TASK_REGISTRY[task]
    assert task_type.valid_step(SimpleNamespace(), {}, None, None) == (0.0, 0, {})
