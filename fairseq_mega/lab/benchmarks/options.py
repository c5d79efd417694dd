"""The form of a benchmark, and the options that several benchmarks share."""

import argparse
import os
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Sequence

import torch

from fairseq_mega.lab.runs.files import in_the_way_of

LISTS = ("lengths", "positions", "sizes", "chunk")  # options that contain several numbers if they are text
FROM_0 = ("positions", "chunk", "chunk_size")
FILES = ("json", "rows", "plot")


class Benchmark(NamedTuple):
    """A subcommand of ``python -m fairseq_mega.lab.benchmarks``."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    # Measures one part in a separate process, see :func:`fairseq_mega.lab.benchmarks.apart.run_apart`.
    measure: Optional[Callable[[str, argparse.Namespace], Dict[str, Any]]] = None
    smoke: Sequence[str] = ()  # options that --smoke implies; the command line overrides them


def add_common_options(parser: argparse.ArgumentParser, repeat: Optional[int]) -> None:
    """Add the options of every benchmark; ``repeat`` is the number of timings, None if it is fixed."""
    add = parser.add_argument
    if repeat is not None:
        add("--repeat", type=int, default=repeat, help="timed runs; the median is reported (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device to measure on (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    add("--smoke", action="store_true", help="measure tiny sizes for a quick check")


def add_sweep_options(parser: argparse.ArgumentParser, autocast: bool = False) -> None:
    """Add the options of benchmarks with many measurements, which continue after an interruption.

    Args:
        parser: parser to extend.
        autocast: whether the benchmark also measures float32 weights under autocast to bfloat16.
    """
    add = parser.add_argument
    types, of = ["float32", "bfloat16"], "dtype of all tensors"
    if autocast:
        types, of = [*types, "autocast"], f"{of}; autocast: float32 under autocast to bfloat16"
    add("--dtype", choices=types, default="float32", help=f"{of} (default: %(default)s)")
    add("--sweeps", type=int, default=2, help="passes; the fastest median counts (default: %(default)s)")
    add_rows_options(parser)


def add_rows_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmarks whose measurements are kept in ``Rows``."""
    add = parser.add_argument
    add(
        "--rows", type=Path, metavar="FILE", help="record each measurement here at once, and skip those recorded before"
    )
    add("--stop-after", type=float, metavar="SECONDS", help="start no measurement after this time; exit with status 75")


def chosen_of(given: str, option: str, known: Sequence[str]) -> Sequence[str]:
    """Split a comma-separated option into its names.

    Raises:
        SystemExit: if a name is unknown.
    """
    names = given.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise SystemExit(f"{option} {given}: {unknown[0]!r} is unknown, choose from {', '.join(known)}")
    return names


def check_options(arguments: argparse.Namespace) -> None:
    """Refuse invalid options before the first measurement.

    Raises:
        SystemExit: naming the option.
    """
    for name, value in vars(arguments).items():
        option, least = f"--{name.replace('_', '-')}", 0 if name in FROM_0 else 1
        if name in LISTS and isinstance(value, str):
            if not all(part.strip().isdigit() and int(part) >= least for part in value.split(",")):
                raise SystemExit(f"{option} {value!r}: give whole numbers from {least} on, separated by commas")
        elif type(value) is int and value < least:
            raise SystemExit(f"{option} {value}: give a whole number from {least} on")
        if isinstance(value, float) and not value >= 0:
            raise SystemExit(f"{option} {value}: give a number of at least 0, or inf for no limit")
        if isinstance(value, Path) and name in FILES and (value.is_dir() or not is_writable(value)):
            raise SystemExit(f"{option} {value}: name a file in a folder that can be written")
    if getattr(arguments, "device", None) == "cuda" and not torch.cuda.is_available():
        raise SystemExit("--device cuda: there is no GPU, or torch was built without CUDA: give --device cpu")


def is_writable(path: Path) -> bool:
    """Return whether a file can be written; the last of its folders may be missing."""
    return os.access(path, os.W_OK) if path.exists() else in_the_way_of(path.absolute().parent) is None
