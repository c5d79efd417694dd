"""Measurements in several processes at once, a group of torch.distributed."""

import multiprocessing
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List

import torch


def largest(work: Callable[..., Dict[str, float]], processes: int, *given: Any) -> Dict[str, float]:
    """Measure in several processes, and return the largest value of each measurement.

    Args:
        work: called as ``work(rank, processes, init, *given)``, with the address for the processes to meet.
        processes: number of processes, copies of this one, which must have computed nothing yet.

    Raises:
        SystemExit: if a process fails.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        arguments = [(work, rank, processes, Path(folder), *given) for rank in range(processes)]
        started = [context.Process(target=_save, args=one) for one in arguments]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            raise SystemExit(f"processes ended with {[process.exitcode for process in started]}")
        found: List[Dict[str, float]] = [torch.load(Path(folder) / str(rank)) for rank in range(processes)]
    return {key: max(one[key] for one in found) for key in found[0]}


def _save(work: Callable[..., Any], rank: int, processes: int, folder: Path, *given: Any) -> None:
    torch.save(work(rank, processes, f"file://{folder}/group", *given), folder / str(rank))
