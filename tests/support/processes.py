"""Several processes on this machine: a group for tests of their messages, fairseq's for whole trainings."""

import faulthandler
import multiprocessing
import os
import socket
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.distributed as dist

from fairseq_mega.cli import console

REPOSITORY = Path(__file__).resolve().parents[2]
# Imported before the first process is started: imports take longer than all that a training of a few updates does.
IMPORTED = ["tests.support.processes", "fairseq_cli.train"]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def new_process(work: Callable[..., None], *arguments: Any) -> multiprocessing.process.BaseProcess:
    """Start a copy of a process that has imported fairseq and done nothing else, so without what other tests left."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    process = context.Process(target=work, args=arguments)
    process.start()
    return process


def start_group(work: Callable[..., Any], processes: int, folder: Path, *arguments: Any) -> List[Any]:
    """Call ``work(rank, *arguments)`` in processes with a gloo group; each saves what it returns in ``folder/rank``."""
    init = f"file://{folder / 'group'}"
    return [new_process(_run, work, rank, processes, init, folder, *arguments) for rank in range(processes)]


def run_group(work: Callable[..., Any], processes: int, folder: Path, *arguments: Any) -> List[Any]:
    """Start processes by :func:`start_group` and return the result of each."""
    started = start_group(work, processes, folder, *arguments)
    for process in started:
        process.join(120)
    statuses = [process.exitcode for process in started]
    assert statuses == [0] * processes, f"the processes of {work.__name__} ended with {statuses}"
    return [torch.load(folder / str(rank)) for rank in range(processes)]


def _run(work: Any, rank: int, processes: int, init: str, folder: Path, *arguments: Any) -> None:
    faulthandler.enable()  # says where the process was when it crashed
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=processes)
    torch.save(work(rank, *arguments), folder / str(rank))


class Training:
    """A process of fairseq-mega-train, see :func:`new_process`."""

    def __init__(self, arguments: List[str]) -> None:
        mine, its = multiprocessing.Pipe(duplex=False)
        self.process = new_process(_train, arguments, os.getcwd(), dict(os.environ), its)
        its.close()
        self.stdout = os.fdopen(os.dup(mine.fileno()), encoding="utf-8")  # and its stderr
        mine.close()

    def kill(self) -> None:
        self.process.kill()

    def communicate(self, timeout: Optional[float] = None) -> Tuple[str, None]:
        """Return what it has printed since, when it has ended; killed where it has not after `timeout` seconds."""
        clock = threading.Timer(timeout or 600.0, self.kill)
        clock.start()
        with self.stdout:
            printed = self.stdout.read()
        self.process.join()
        clock.cancel()
        return printed, None

    @property
    def returncode(self) -> Optional[int]:
        return self.process.exitcode


def _train(arguments: List[str], folder: str, environment: Dict[str, str], output: Connection) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    for stream in (sys.stdout, sys.stderr):
        os.dup2(output.fileno(), stream.fileno())
    output.close()
    sys.argv = ["fairseq-mega-train", *arguments]
    sys.exit(console.train())


def start_trainings(argv: Sequence[object], processes: int, ddp_backend: str = "legacy_ddp") -> List[Training]:
    """Start fairseq-mega-train on the CPU as processes that share the work."""
    port = free_port()
    started = []
    for rank in range(processes):
        options = ["--cpu", "--ddp-backend", ddp_backend, "--distributed-world-size", processes]
        options += ["--distributed-rank", rank, "--distributed-no-spawn", "--distributed-backend", "gloo"]
        options += ["--distributed-init-method", f"tcp://localhost:{port}"]
        started.append(Training([*map(str, [*argv, *options])]))
    return started
