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
from functools import partial
from itertools import product
from pathlib import Path
from typing import AbstractSet, Any, Callable, Dict, List, NamedTuple, Optional, Sequence

import torch

from fairseq_mega.lab.benchmarks.command import find, module_of
from fairseq_mega.lab.runs.files import add_json_line, read_json_lines
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.lab.runs.text_tables import Table, markdown
from fairseq_mega.ops.common.dispatch import PathUnavailableError

Figures = Dict[str, Any]  # of one measurement, by name
NOT_RECORDED = {"json", "rows", "stop_after", "benchmark", "given"}  # options without effect on a measurement
# Options that select measurements.
SELECTING = {"lengths", "models", "ops", "shape", "preset", "shrink", "peers", "shapes", "sweeps", "time_limit"}
COLUMNS = {  # of the printed table: figures with their titles, factors and digits
    "parameters": ("parameters", 1.0, 0),
    "forward_seconds": ("forward, ms", 1e3, 2),
    "seconds": ("ms", 1e3, 2),
    "memory_mib": ("peak MiB", 1.0, 0),
    "bytes": ("state, KiB", 1 / 1024, 0),
    "speed": ("speed", 1.0, 2),
    "memory": ("memory", 1.0, 2),
}
MOST_MEMORY = 0.7  # share of the free memory that a measurement may need, as estimated from shorter ones
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


def available_mib(device: torch.device) -> float:
    """Return the free memory of the device in MiB."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] / 2**20
    found = re.search(r"^MemAvailable:\s+(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    assert found, "/proc/meminfo has no MemAvailable; measuring memory requires Linux"
    return int(found.group(1)) / 2**10


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


class Case(NamedTuple):
    """A measurement of a benchmark."""

    subject: str  # begins the names of its scores
    what: Dict[str, Any]  # further arguments of the benchmark's ``measure``
    items: int = 0  # tokens or texts of a run, for the column of the rate
    against: str = ""  # subject of the case whose time and memory this one is compared with
    series: str = ""  # of cases that differ in their length; after a shorter one too long ones are omitted
    length: int = 1
    power: int = 1  # of the length, with which time and memory grow


def measure_apart(arguments: argparse.Namespace, what: Dict[str, Any]) -> Figures:
    """Measure a case of a benchmark in a fresh process, and return its figures; an error of the process is raised.

    The process is a copy of a process that has imported the benchmark, as an import takes longer than most
    measurements.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module_of(arguments.benchmark)])
    os.environ.update(OMP_NUM_THREADS=str(arguments.threads))
    with ProcessPoolExecutor(1, mp_context=context) as process:
        return process.submit(measure_here, arguments, what).result()


def measure_here(arguments: argparse.Namespace, what: Dict[str, Any]) -> Figures:
    """Measure a case of a benchmark in this process.

    ``skipped`` is the reason if the machine does not have the path, or a GPU not enough memory.
    """
    measure = find(arguments.benchmark).measure
    assert measure is not None, f"{arguments.benchmark} does not measure cases"
    threads = torch.get_num_threads()
    torch.set_num_threads(arguments.threads)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return measure(arguments, **what)
    except PathUnavailableError as error:
        return {"skipped": str(error)}
    except torch.cuda.OutOfMemoryError:
        return {"skipped": "the GPU's memory does not suffice"}
    finally:
        torch.set_num_threads(threads)
        if arguments.device == "cuda":
            torch.cuda.empty_cache()  # memory that one case keeps must be free for the next


def settings_of(arguments: argparse.Namespace, omitted: AbstractSet[str] = frozenset()) -> Dict[str, Any]:
    """Return the options that measurements depend on, without those ``omitted``."""
    return {name: value for name, value in vars(arguments).items() if name not in NOT_RECORDED | omitted}


class Rows:
    """Measurements as JSON lines: an interrupted run continues after its last line.

    Args:
        arguments: of the command line: ``rows``, the file, None for no file; and ``stop_after``, the seconds after
            which nothing more is measured. Options that do not select measurements are part of every line; lines with
            other options are ignored.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.path = arguments.rows
        self.settings = settings_of(arguments, SELECTING)
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
            print("measuring", *what.values(), file=sys.stderr)
            self.known[key] = found = measure()
            if self.path is not None:
                add_json_line(self.path, {"settings": self.settings, "what": what, "found": found})
        return self.known[key]


def keep_the_faster(best: Figures, found: Figures) -> Figures:
    """Return the smaller of two measurements of the same work, number by number."""
    return {key: min(best.get(key, value), value) if is_number(value) else value for key, value in found.items()}


def is_number(value: object) -> bool:
    """Return whether a figure is a score."""
    return isinstance(value, (int, float))


def omitted(case: Case, cases: Sequence[Case], found: Dict[str, Figures], limits: Figures) -> Figures:
    """Return the reason to omit a case as the figure ``skipped``, from shorter cases of its series; or no figure."""
    for other in cases:
        figures = found.get(other.subject, {})
        if case.series and other.series == case.series and other.length < case.length and "seconds" in figures:
            growth = (case.length / other.length) ** case.power
            for key, limit in limits.items():
                if figures[key] * growth > limit:
                    return {"skipped": f"would need about {figures[key] * growth:.0f} {key}, the limit is {limit:.0f}"}
    return {}


def table(cases: Sequence[Case], found: Dict[str, Figures]) -> str:
    """Return the figures of all cases as a Markdown table."""
    keys = dict.fromkeys(key for case in cases for key, value in found[case.subject].items() if is_number(value))
    columns = {key: COLUMNS[key] for key in COLUMNS if key in keys}
    with_rate = any(case.items for case in cases)
    rows = []
    for case in cases:
        figures = found[case.subject]
        shown = ((figures.get(key), factor, digits) for key, (_, factor, digits) in columns.items())
        cells = ["" if value is None else f"{value * factor:,.{digits}f}" for value, factor, digits in shown]
        rate = [f"{case.items / figures['seconds']:,.1f}" if "seconds" in figures else ""] * with_rate
        head = f"{case.subject}: skipped, {figures['skipped']}" if "skipped" in figures else case.subject
        rows.append([head, *cells, *rate])
    return markdown(Table(["", *(title for title, _, _ in columns.values()), *["per second"] * with_rate], rows))


def run(
    arguments: argparse.Namespace,
    cases_of: Callable[[argparse.Namespace], List[Case]],
    finish: Optional[Callable[[argparse.Namespace, List[Case], Dict[str, Figures]], Figures]] = None,
    apart: bool = True,
) -> None:
    """Measure the cases of a benchmark in turn, print a row for each, and write the result file.

    On a CPU each case is measured in a fresh process, which has no memory of the case before; on a GPU, whose allocator
    counts exactly, and with --smoke in this process.

    Args:
        arguments: of the command line.
        cases_of: returns the cases.
        finish: changes the figures and the recorded settings, and returns further fields of the result file.
        apart: False to measure all in this process.

    Raises:
        ValueError: if no case can be measured.
    """
    cases = cases_of(arguments)
    found: Dict[str, Figures] = {}
    kept = Rows(arguments)
    memory = MOST_MEMORY * available_mib(torch.device(arguments.device))
    limits = {"seconds": getattr(arguments, "time_limit", math.inf), "memory_mib": memory}
    here = arguments.smoke or arguments.device == "cuda" or not apart
    for sweep, case in product(range(arguments.sweeps), cases):
        best = found[case.subject] if sweep else omitted(case, cases, found, limits)
        if "skipped" not in best:
            measure = partial(measure_here if here else measure_apart, arguments, case.what)
            figures = kept.of(measure, **case.what, sweep=sweep + 1)
            best = figures if "skipped" in figures else keep_the_faster(best, figures)
        found[case.subject] = best
    if all("skipped" in figures for figures in found.values()):
        reasons = sorted({figures["skipped"] for figures in found.values()})
        raise ValueError("nothing could be measured: " + "; ".join(reasons))
    for case in cases:
        own, base = found[case.subject], found.get(case.against, {})
        if "seconds" in own and "seconds" in base:
            own["speed"] = base["seconds"] / own["seconds"]
            if "memory_mib" in own:
                own["memory"] = own["memory_mib"] / max(base["memory_mib"], 0.1)
    details = finish(arguments, cases, found) if finish else {}
    print(table(cases, found))
    scores = {f"{subject} {key}": x for subject, one in found.items() for key, x in one.items() if is_number(x)}
    measured = sum("skipped" not in figures for figures in found.values())
    write_measurements(arguments, scores, measured, **details)


def write_measurements(arguments: argparse.Namespace, scores: Dict[str, float], examples: int, **details: Any) -> None:
    """Write the measurements to ``--json``, if it is passed, with the other options as the settings."""
    if arguments.json is None:
        return
    settings = settings_of(arguments)
    command = " ".join(["python", "-m", __package__, *arguments.given])
    benchmark = arguments.benchmark
    label = f"{benchmark}-{arguments.device}"
    write_result(arguments.json, make_result(benchmark, label, scores, examples, command, settings=settings, **details))
