"""Measure time and peak memory, and write the result file."""

import argparse
import math
import re
import statistics
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional

import torch
from torch.autograd.profiler import profile  # torch.profiler's imports torch's compiler, which needs seconds

from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.ops.common import native

MODULE = "fairseq_mega.lab.benchmarks"


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
    (two streams), and the kernels' product of one row with a matrix. Each operation runs in parts, and the fastest of
    several turns counts for each part.
    """
    if device.type == "cuda":
        return bandwidth(device, 512, 5)
    parts = torch.ones(16, 1 << 22)
    row = torch.ones(1, 1 << 10)
    reads: List[Callable[[torch.Tensor], object]] = [torch.sum, lambda part: torch.dot(*part.chunk(2))]
    if native.PROBLEM is None:
        reads.append(lambda part: native.operators.packed_linear(row, part.view(-1, row.numel()), None, None))
    best = [[math.inf] * len(parts) for _ in reads]
    for _ in range(10):
        for read, seconds in zip(reads, best):
            for index, part in enumerate(parts):
                start = time.perf_counter()
                read(part)
                seconds[index] = min(seconds[index], time.perf_counter() - start)
    return parts.numel() * parts.element_size() / min(map(sum, best))


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


def write_measurements(arguments: argparse.Namespace, scores: Dict[str, float], examples: int, **details: Any) -> None:
    """Write the measurements to ``--json``, if it is given, with the other options as the settings."""
    if arguments.json is None:
        return
    left_out = ("json", "plot", "rows", "stop_after", "benchmark", "given")
    settings = {name: value for name, value in vars(arguments).items() if name not in left_out}
    command = " ".join(["python", "-m", MODULE, *arguments.given])
    benchmark = arguments.benchmark
    label = f"{benchmark}-{arguments.device}"
    write_result(arguments.json, make_result(benchmark, label, scores, examples, command, settings=settings, **details))


def keep_the_faster(best: Dict[str, float], found: Dict[str, float]) -> Dict[str, float]:
    """Return the smaller of two measurements of the same work, figure by figure."""
    return {key: min(best[key], found[key]) for key in found}
