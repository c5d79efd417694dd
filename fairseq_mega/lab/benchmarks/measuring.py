"""Measure time and peak memory, in processes of their own; keep the measurements, and write the result file."""

import argparse
import json
import math
import multiprocessing
import os
import re
import statistics
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import torch
from torch.autograd.profiler import profile  # torch.profiler's imports torch's compiler, which needs seconds

from fairseq_mega.lab.benchmarks.command import find, module_of
from fairseq_mega.lab.runs.files import add_json_line, read_json_lines
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.ops.common import native

Figures = Dict[str, Any]  # measurements of one part of a benchmark
NOT_YET = 75  # exit status: measurements are left, the same command continues (EX_TEMPFAIL)


def resident_mib(field: str) -> float:
    """Return this process's resident memory in MiB: the present VmRSS or the peak VmHWM (Linux)."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, f"/proc/self/status has no {field}; measuring memory requires Linux"
    return int(found.group(1)) / 2**10


def reset_peak_memory() -> float:
    """Reset the peak and return the present resident memory in MiB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_mib("VmRSS")


def available_gib(device: torch.device) -> float:
    """Return the free memory of the device in GiB."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2**30
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found, "/proc/meminfo has no MemAvailable; measuring memory requires Linux"
    return int(found.group(1)) / 2**20


def median_seconds(work: Callable[[], object], repeat: int, device: torch.device) -> float:
    """Return the median time of ``repeat`` runs after an uncounted one."""
    seconds: List[float] = []
    for _ in range(repeat + 1):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds[1:])


def time_and_memory(work: Callable[[], object], repeat: int, device: torch.device) -> Dict[str, float]:
    """Return the median ``seconds`` of the work, and ``memory_mib``, its peak above the memory held before."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device) / 2**20
    else:
        before = reset_peak_memory()
    seconds = median_seconds(work, repeat, device)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(device) / 2**20
    else:
        peak = resident_mib("VmHWM")
    return {"seconds": seconds, "memory_mib": peak - before}


def kept_mib(forward: Callable[[], Any], device: torch.device) -> float:
    """Return the MiB of tensors that a forward pass keeps for the backward pass, including its result."""
    forward()  # memory that is allocated once
    results = []  # held until memory is counted
    if device.type == "cuda":
        before = torch.cuda.memory_allocated(device)
        results.append(forward())
        return (torch.cuda.memory_allocated(device) - before) / 2**20
    with profile(profile_memory=True) as profiled:
        results.append(forward())
    return sum(event.self_cpu_memory_usage for event in profiled.key_averages()) / 2**20


def bandwidth(device: torch.device, mib: int, repeat: int) -> float:
    """Return the bytes per second, read and written together, of torch's copy of a tensor of ``mib`` MiB."""
    source = torch.ones(mib * 2**18, device=device)
    target = torch.empty_like(source)
    return 2 * source.numel() * source.element_size() / median_seconds(lambda: target.copy_(source), repeat, device)


def reading_bandwidth(device: torch.device) -> float:
    """Return the best read bandwidth in bytes per second: of torch's threads on a CPU, of a copy (both ways) on a GPU.

    The result is the fastest of three operations over 256 MiB: torch's sum (one stream of numbers), its inner product
    (two streams), and the kernels' product of one row with a matrix.
    """
    if device.type == "cuda":
        return bandwidth(device, 512, 5)
    read, row = torch.ones(1 << 16, 1 << 10), torch.ones(1, 1 << 10)
    reads: List[Callable[[], object]] = [read.sum, lambda: torch.dot(*read.flatten().chunk(2))]
    if native.PROBLEM is None:
        reads.append(lambda: native.operators.packed_linear(row, read, None, None))
    best = math.inf
    for _ in range(10):
        for work in reads:
            start = time.perf_counter()
            work()
            best = min(best, time.perf_counter() - start)
    return read.numel() * read.element_size() / best


def float32_peak(threads: int) -> Optional[float]:
    """Return float32 multiplications and additions per second in the registers of some cores; None without kernels."""
    if native.PROBLEM is not None:
        return None
    rates = []
    for _ in range(20):
        start = time.perf_counter()
        operations = native.operators.multiply_add_registers(1 << 18)
        rates.append(operations / (time.perf_counter() - start))
    return threads * max(rates)


def run_once(part: str, arguments: argparse.Namespace, alone: bool = False) -> Figures:
    """Measure a part of a benchmark, and return its measurements: in a fresh process on a CPU, on a GPU in this one.

    A GPU's allocator counts exactly, and a process takes longer than most measurements. A fresh process is a copy of a
    process that has imported the benchmark, as an import takes longer, too. An error of the process is raised.

    Args:
        part: of the benchmark, the argument of its ``measure``.
        arguments: of its command line; ``threads`` is set by the first measurement of this process.
        alone: use a fresh process on a GPU, too.
    """
    print(f"measuring {part}", file=sys.stderr)
    if arguments.device == "cuda" and not alone:
        return run_here(part, arguments)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module_of(arguments.benchmark)])
    os.environ.update(OMP_NUM_THREADS=str(arguments.threads), KINETO_LOG_LEVEL="99")  # the profiler prints nothing
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(run_here, part, arguments).result()


def run_here(part: str, arguments: argparse.Namespace) -> Figures:
    """Measure a part of a benchmark in this process."""
    measure = find(arguments.benchmark).measure
    assert measure is not None, f"{arguments.benchmark} does not measure parts"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return measure(part, arguments)
    finally:
        if arguments.device == "cuda":
            torch.cuda.empty_cache()  # memory that one part keeps must be free for the next


class Rows:
    """Measurements as JSON lines: an interrupted run continues after its last line.

    Args:
        arguments: of the command line: ``rows``, the file, None for no file; and ``stop_after``, the seconds after
            which nothing more is measured.
        settings: part of every line; lines with other settings are ignored.
    """

    def __init__(self, arguments: argparse.Namespace, settings: Dict[str, Any]) -> None:
        self.path, self.settings = arguments.rows, settings
        self.end = math.inf if arguments.stop_after is None else time.monotonic() + arguments.stop_after
        rows = read_json_lines(self.path) if self.path is not None else []
        self.known = {json.dumps([row["settings"], row["what"]], sort_keys=True): row["found"] for row in rows}

    def of(self, measure: Callable[[], Figures], **what: Any) -> Figures:
        """Return the figures of a subject, measured now unless they are known.

        Raises:
            SystemExit: with status NOT_YET, if they are not known and the time is up.
        """
        key = json.dumps([self.settings, what], sort_keys=True)
        if key not in self.known:
            if time.monotonic() > self.end:
                rows = f"{len(self.known)} rows are in {self.path}"
                print(f"the time is up: {rows}, the same command continues", file=sys.stderr)
                sys.exit(NOT_YET)
            self.known[key] = found = measure()
            if self.path is not None:
                add_json_line(self.path, {"settings": self.settings, "what": what, "found": found})
        return self.known[key]


def keep_the_faster(best: Figures, found: Figures) -> Figures:
    """Return the smaller of two measurements of the same work, figure by figure."""
    return {key: min(best.get(key, value), value) for key, value in found.items()}


def write_measurements(arguments: argparse.Namespace, scores: Dict[str, float], examples: int, **details: Any) -> None:
    """Write the measurements to ``--json``, if it is passed, with the other options as the settings."""
    if arguments.json is None:
        return
    omitted = ("json", "rows", "stop_after", "benchmark", "given")
    settings = {name: value for name, value in vars(arguments).items() if name not in omitted}
    command = " ".join(["python", "-m", __package__, *arguments.given])
    benchmark = arguments.benchmark
    label = f"{benchmark}-{arguments.device}"
    write_result(arguments.json, make_result(benchmark, label, scores, examples, command, settings=settings, **details))
