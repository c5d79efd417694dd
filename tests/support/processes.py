"""Several processes on this machine: forked ones for tests of their messages, fairseq's for whole trainings."""

import multiprocessing
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, List, Sequence

import torch
import torch.distributed as dist

REPOSITORY = Path(__file__).resolve().parents[2]


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        return free.getsockname()[1]


def start_forked(work: Callable[..., Any], processes: int, folder: Path, *arguments: Any) -> List[Any]:
    """Call ``work(rank, *arguments)`` in processes with a gloo group; each saves what it returns in ``folder/rank``."""
    context = multiprocessing.get_context("fork")  # all is imported already
    init = f"file://{folder / 'group'}"
    given = [(work, rank, processes, init, folder, *arguments) for rank in range(processes)]
    started = [context.Process(target=_run, args=args) for args in given]
    for process in started:
        process.start()
    return started


def run_forked(work: Callable[..., Any], processes: int, folder: Path, *arguments: Any) -> List[Any]:
    """As :func:`start_forked`, and wait for what each returned."""
    started = start_forked(work, processes, folder, *arguments)
    for process in started:
        process.join(120)
    assert [process.exitcode for process in started] == [0] * processes
    return [torch.load(folder / str(rank)) for rank in range(processes)]


def _run(work: Any, rank: int, processes: int, init: str, folder: Path, *arguments: Any) -> None:
    torch.set_num_threads(1)  # the threads of OpenMP do not outlive a fork
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=processes)
    torch.save(work(rank, *arguments), folder / str(rank))


def start_trainings(argv: Sequence[object], processes: int, ddp_backend: str = "legacy_ddp") -> List[subprocess.Popen]:
    """Start fairseq-mega-train on the CPU as processes that share the work."""
    port = free_port()
    program = "import sys; from fairseq_mega.cli.console import train; sys.exit(train())"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore"}
    environment.update(OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0")
    started = []
    for rank in range(processes):
        options = ["--cpu", "--ddp-backend", ddp_backend, "--distributed-world-size", processes]
        options += ["--distributed-rank", rank, "--distributed-no-spawn", "--distributed-backend", "gloo"]
        options += ["--distributed-init-method", f"tcp://localhost:{port}"]
        command = [sys.executable, "-c", program, *map(str, [*argv, *options])]
        started.append(
            subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        )
    return started
