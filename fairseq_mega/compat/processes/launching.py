"""Start the processes of a training by torchrun, SLURM, hand or fairseq, also on CPUs."""

import builtins
import contextlib
import functools
import importlib
import inspect
import logging
import os
import pathlib
import socket
import subprocess
import sys
import typing

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.checks import command_of as evaluating_command
from fairseq_mega.compat.patching import globals_of_training, wrap, wrapped
from fairseq_mega.compat.processes.out_of_memory import is_out_of_memory

logger = logging.getLogger("fairseq_mega.compat.processes.launching")
BY_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
IN_ONE_PROCESS = ("eval_lm", "interactive")  # commands of fairseq


def join_started_processes() -> None:
    """Train with the processes that were started.

    fairseq reads torchrun's variables only if --distributed-world-size is above 1, divides by the number of GPUs, and
    starts one process for each GPU. On a CPU it starts no process and ends with success.
    """
    from fairseq.distributed import utils

    wrap(utils, "call_main", _call_in_processes)
    training = globals_of_training()
    if training:  # of fairseq-hydra-train, which imports the plugin after call_main
        training["add_defaults"] = wrapped(training["add_defaults"], _add_defaults_and_join)


def _add_defaults_and_join(original: typing.Callable, cfg: typing.Any) -> None:
    """Complete the settings of a training, and join the processes of torchrun if call_main began it as a single one."""
    from fairseq.distributed import utils

    original(cfg)
    options, joined = cfg.distributed_training, torch.distributed.is_initialized()
    if joined or started_processes() == 1 or options.distributed_world_size > 1 or cfg.common.tpu:
        return
    read_variables(options)
    if options.distributed_world_size == 1:
        return
    if cfg.common.cpu or not torch.cuda.is_available():
        options.distributed_backend, options.device_id = "gloo", 0
    else:
        torch.cuda.set_device(options.device_id)
    options.distributed_rank = utils.distributed_init(cfg)


def parse_local_rank(call: hooks.Call) -> typing.Iterator[None]:
    """Accept --local-rank, which torch.distributed.launch passes to each process (event "parse").

    Set --distributed-world-size to 1 with --cpu and for commands that work in one process. With two GPUs
    fairseq-generate would translate every second batch, and fairseq-interactive would start two processes that read the
    same lines.
    """
    parser = call.arguments["parser"]
    known = parser._option_string_actions
    if "--local_rank" in known and "--local-rank" not in known:
        known["--local-rank"] = known["--local_rank"]
    yield
    options = hooks.parsed(call)
    command = evaluating_command(vars(options))
    if call.arguments["input_args"] is None and command in (
        "generate",
        "interactive",
    ):  # fairseq-generate calls no hook before it starts
        refuse_several_processes(f"fairseq-{command}")
    if hasattr(options, "distributed_world_size"):
        asked = is_given("--distributed-world-size", hooks.words(call))
        in_one_process = command in ("generate", "interactive", "eval-lm")
        if in_one_process and asked and options.distributed_world_size > 1:
            number = options.distributed_world_size
            parser.error(f"--distributed-world-size {number}: this command works in one process; leave the option out")
        if not asked and (in_one_process or getattr(options, "cpu", False)):
            options.distributed_world_size = 1  # fairseq's default is the number of GPUs


def is_given(option: str, words: typing.Iterable[str]) -> bool:
    """Return whether the words of a command line have an option."""
    return any(word == option or word.startswith(f"{option}=") for word in words)


def started_processes() -> int:
    """Return the number of processes that torchrun or a similar program started, or 1.

    Raises:
        ValueError: if a variable is not a number.
    """
    return _number("WORLD_SIZE", 1)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise ValueError(f"the environment variable {name} is {text!r}: set a whole number, or unset it")
    return int(text)


def refuse_several_processes(command: str) -> None:
    """Raise a ValueError if torchrun started several processes of a command that works in one process.

    Processes of srun may have different arguments, so they are a warning.
    """
    processes = started_processes()
    if processes > 1 and "RANK" in os.environ:
        raise ValueError(
            f"{command} works in one process, and {processes} were started (WORLD_SIZE is {processes}): start it "
            f"without torchrun, or unset WORLD_SIZE"
        )
    tasks = _number("SLURM_STEP_NUM_TASKS", 1)
    if tasks > 1 and "SLURM_PROCID" in os.environ:
        logger.warning(f"{command} works in one process, and srun started {tasks}: each of them does the whole work")


def command_of(main: typing.Any) -> str:
    """Return the name of the file of a main function of fairseq's commands, such as "train", or "".

    The function's module may be __main__, and the function may be a partial function for autocast.
    """
    while isinstance(main, functools.partial):
        main = next(filter(callable, main.args), main.func)
    code = getattr(inspect.unwrap(main), "__code__", None)
    return pathlib.Path(code.co_filename).stem if code is not None else ""


def _call_in_processes(
    original: typing.Callable, cfg: typing.Any, main: typing.Callable, **kwargs: typing.Any
) -> typing.Any:
    options, on_cpu = cfg.distributed_training, cfg.common.cpu or not torch.cuda.is_available()
    command = command_of(main)
    if cfg.common.tpu:
        return original(cfg, main, **kwargs)
    if command in IN_ONE_PROCESS:
        refuse_several_processes(f"fairseq-{command.replace('_', '-')}")
        if options.distributed_world_size > 1:
            raise ValueError(
                f"--distributed-world-size {options.distributed_world_size}: fairseq-{command.replace('_', '-')} works "
                f"in one process: omit it"
            )
    read_variables(options)
    if command not in IN_ONE_PROCESS:
        read_slurm(options, on_cpu)
    if on_cpu and options.distributed_world_size > 1:
        return _call_on_cpu(original, cfg, main, kwargs)
    with errors_of_processes():
        return original(cfg, main, **kwargs)


def read_variables(options: typing.Any) -> None:
    """Read number and rank of the processes from torchrun's variables if they are set.

    Args:
        options: a DistributedTrainingConfig.

    Raises:
        ValueError: if a variable is missing, or --distributed-world-size contradicts the variables.
    """
    asked, gpus, processes = options.distributed_world_size, torch.cuda.device_count(), started_processes()
    own_address = options.distributed_init_method not in (None, "env://")
    if own_address and is_given("--distributed-rank", sys.argv):
        return  # the options are complete
    needed = BY_TORCHRUN[:2] if own_address else BY_TORCHRUN
    missing = [name for name in needed if not os.environ.get(name)]
    if missing:
        if own_address or (processes == 1 and options.distributed_init_method is None):
            return
        raise ValueError(
            f"the environment lacks {', '.join(missing)}: set {', '.join(needed)} in each process, as torchrun does, "
            f"or unset WORLD_SIZE to train in one process"
        )
    if asked not in (1, gpus, processes):
        raise ValueError(
            f"--distributed-world-size {asked}, and {processes} processes were started (WORLD_SIZE is {processes}): "
            f"leave the option out, or start {asked}"
        )
    rank = _number("RANK", 0)
    if rank >= processes:
        raise ValueError(f"RANK is {rank} and WORLD_SIZE {processes}: ranks count from 0 to {processes - 1}")
    options.distributed_world_size, options.distributed_rank = processes, rank
    if processes == 1 and not gpus:
        return
    options.distributed_init_method = options.distributed_init_method or "env://"
    options.device_id = _number("LOCAL_RANK", rank) % max(1, gpus)
    options.distributed_no_spawn = True


def read_slurm(options: typing.Any, on_cpu: bool) -> None:
    """Read rank and address from SLURM's variables if srun started several processes on CPUs; fairseq does so for GPUs.

    Args:
        options: a DistributedTrainingConfig.
        on_cpu: no GPU is used.

    Raises:
        ValueError: if each process would train alone without an option that requests it.
    """
    rank, asked, port = os.environ.get("SLURM_PROCID"), options.distributed_world_size, options.distributed_port
    tasks = _number("SLURM_STEP_NUM_TASKS", 1)
    if tasks == 1 and (on_cpu or rank != "0"):  # a script of sbatch has these variables, too, as process 0
        nodes = _number("SLURM_NNODES", 1)
        tasks = _number("SLURM_NTASKS", nodes * _number("SLURM_NTASKS_PER_NODE", 1))
    alone = asked == 1 and is_given("--distributed-world-size", sys.argv)
    if rank is None or tasks == 1 or alone or "RANK" in os.environ or options.distributed_init_method is not None:
        return
    if asked == 1 or port <= 0 or (on_cpu and asked != tasks):
        raise ValueError(
            f"SLURM has {tasks} processes for this command: give --distributed-world-size {tasks} --distributed-port "
            f"PORT, with a free port, to train in all processes together, or --distributed-world-size 1 to train in "
            f"each process alone"
        )
    if on_cpu:
        options.distributed_init_method = f"tcp://{_first_host()}:{port}"
        options.distributed_rank, options.distributed_no_spawn = _number("SLURM_PROCID", 0), True


def _first_host() -> str:
    """Return the name of the node with rank 0."""
    if _number("SLURM_NNODES", 1) == 1:
        return "localhost"
    nodes = os.environ.get("SLURM_STEP_NODELIST") or os.environ.get("SLURM_JOB_NODELIST", "")
    try:
        return subprocess.check_output(["scontrol", "show", "hostnames", nodes]).decode().split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError) as error:
        raise ValueError(
            f"scontrol does not list the nodes of this job ({error}): give --distributed-init-method tcp://HOST:PORT "
            f"of the first node, and --distributed-rank $SLURM_PROCID"
        ) from error


def _call_on_cpu(
    original: typing.Callable, cfg: typing.Any, main: typing.Callable, kwargs: typing.Dict[str, typing.Any]
) -> typing.Any:
    """Train in several processes without GPUs: join the processes, or start all of them."""
    from fairseq.distributed import utils

    options = cfg.distributed_training
    options.distributed_backend = "gloo"
    if options.distributed_init_method is None:
        port = options.distributed_port if options.distributed_port > 0 else free_port()
        options.distributed_init_method = f"tcp://localhost:{port}"
    elif is_given("--distributed-rank", sys.argv) or options.distributed_rank:
        options.distributed_no_spawn = True  # one process for each command
    options.device_id = 0
    if options.distributed_no_spawn:
        return original(cfg, main, **kwargs)
    start, options.distributed_rank = options.distributed_rank, None  # assigned in the processes
    with errors_of_processes():
        torch.multiprocessing.spawn(
            utils.distributed_main,
            (main, cfg, {**kwargs, "start_rank": start}),
            nprocs=options.distributed_world_size,
        )
    return None


@contextlib.contextmanager
def errors_of_processes() -> typing.Iterator[None]:
    """Raise a user's error of a started process with its original type."""
    try:
        yield
    except torch.multiprocessing.ProcessExitedException as error:
        killed = ", possibly for lack of memory" if "SIGKILL" in str(error) else ""
        raise ChildProcessError(
            f"a process of this command has ended ({error}{killed}): run the same command again to continue a training "
            f"from its last checkpoint"
        ) from error
    except torch.multiprocessing.ProcessRaisedException as error:
        line = str(error).strip().splitlines()[-1]
        kind, _, text = line.partition(": ")
        if is_out_of_memory(RuntimeError(line)):
            raise MemoryError(text) from error
        module, _, name = kind.rpartition(".")
        ours = module.startswith(f"{__name__.partition('.')[0]}.")
        raised = getattr(importlib.import_module(module) if ours else builtins, name, None)
        if not (text and isinstance(raised, type) and issubclass(raised, (OSError, ValueError, ImportError))):
            raise
        raise raised(text) from error


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return int(free.getsockname()[1])
