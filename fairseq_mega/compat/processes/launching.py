"""Start the processes of a training by torchrun, by hand or by fairseq, also on CPUs."""

import os
import socket
import sys
from typing import Any, Callable, Iterable, Iterator

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.checks import command_of


def count_processes(call: hooks.Call) -> Iterator[None]:
    """Set --distributed-world-size to 1 with --cpu, and for commands that evaluate (event "parse").

    With two GPUs fairseq-generate would translate every second batch, fairseq-interactive would start two processes
    that read the same lines, and fairseq-validate would fail at a batch too many for one of them.

    Raises:
        ValueError: if such a command has several processes, each of which would do the whole work.
    """
    yield
    options = hooks.parsed(call)
    if not hasattr(options, "distributed_world_size"):
        return
    command, requested = command_of(vars(options)), is_passed("--distributed-world-size", hooks.words(call))
    if command is not None:
        processes = options.distributed_world_size if requested else 1
        if call.arguments["input_args"] is None:  # the command of this process
            processes = max(processes, started_processes() if "RANK" in os.environ else 1)
        if processes > 1:
            raise ValueError(
                f"fairseq-{command} works in one process, and has {processes} by --distributed-world-size or WORLD_SIZE"
            )
    if not requested and (command is not None or getattr(options, "cpu", False)):
        options.distributed_world_size = 1  # fairseq's default is the number of GPUs


def is_passed(option: str, words: Iterable[str]) -> bool:
    """Return whether the words of a command line have an option."""
    return any(word == option or word.startswith(f"{option}=") for word in words)


def started_processes() -> int:
    """Return the number of processes that torchrun or a similar program started, or 1."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def call_in_processes(call: hooks.Call) -> Iterator[None]:
    """Train with the processes that were started (event "run").

    fairseq reads torchrun's variables only if --distributed-world-size is above 1, divides by the number of GPUs, and
    starts one process for each GPU. On a CPU it starts no process and ends with success.
    """
    cfg = call.arguments["cfg"]
    if not cfg.common.tpu:
        read_variables(cfg.distributed_training)
        on_cpu = cfg.common.cpu or not torch.cuda.is_available()
        if on_cpu and cfg.distributed_training.distributed_world_size > 1:
            call.function = _on_cpu(call.function, cfg.distributed_training)
    yield


def read_variables(options: Any) -> None:
    """Read number and rank of the processes from torchrun's variables if they are set.

    Args:
        options: a DistributedTrainingConfig.

    Raises:
        ValueError: if --distributed-world-size contradicts the variables.
    """
    requested, gpus, processes = options.distributed_world_size, torch.cuda.device_count(), started_processes()
    own_address = options.distributed_init_method not in (None, "env://")
    if not os.environ.get("RANK") or (own_address and is_passed("--distributed-rank", sys.argv)):
        return  # the options are complete
    if requested not in (1, gpus, processes):
        raise ValueError(f"--distributed-world-size {requested}: WORLD_SIZE is {processes}; omit the option")
    rank = int(os.environ["RANK"])
    options.distributed_world_size, options.distributed_rank = processes, rank
    if processes == 1 and not gpus:
        return
    options.distributed_init_method = options.distributed_init_method or "env://"
    options.device_id = int(os.environ.get("LOCAL_RANK") or rank) % max(1, gpus)
    options.distributed_no_spawn = True


def _on_cpu(call_main: Callable, options: Any) -> Callable:
    """Return the function that trains in several processes without GPUs: it joins the processes, or starts them."""
    options.distributed_backend, options.device_id = "gloo", 0
    if options.distributed_init_method is None:
        port = options.distributed_port if options.distributed_port > 0 else free_port()
        options.distributed_init_method = f"tcp://localhost:{port}"
    elif is_passed("--distributed-rank", sys.argv) or options.distributed_rank:
        options.distributed_no_spawn = True  # one process for each command
    return call_main if options.distributed_no_spawn else _start_on_cpu


def _start_on_cpu(cfg: Any, main: Callable, **kwargs: Any) -> None:
    from fairseq.distributed import utils

    options = cfg.distributed_training
    start, options.distributed_rank = options.distributed_rank, None  # assigned in the processes
    given = (main, cfg, {**kwargs, "start_rank": start})
    torch.multiprocessing.spawn(utils.distributed_main, given, nprocs=options.distributed_world_size)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])
