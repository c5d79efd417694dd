"""Speed and memory of the operators, a layer, and whole models. Run it on an otherwise idle machine."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.cli.commands import add_described
from fairseq_mega.lab.runs.files import check_writable

# Each measurement is a separate process that imports its benchmark alone: the benchmark of a layer needs no fairseq.
NAMES = ("layer", "kernels", "decoding", "lm-length", "chunk-parallel", "lra-speed", "peers", "launches", "device")
SIZES = {
    "width": "width d",
    "layers": "number of layers",
    "chunk": "attention chunk of models with chunks",
    "symbols": "size of the dictionary",
}


class Benchmark(NamedTuple):
    """A subcommand of ``python -m fairseq_mega.lab.benchmarks``."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    # Measures one part in a separate process, see :func:`fairseq_mega.lab.benchmarks.measuring.run_apart`.
    measure: Optional[Callable[[str, argparse.Namespace], Dict[str, Any]]] = None
    smoke: Sequence[str] = ()  # options that --smoke implies; the command line overrides them


def module_of(name: str) -> str:
    """Return the module of a benchmark."""
    return f"fairseq_mega.lab.benchmarks.{name.replace('-', '_')}"


def find(name: str) -> Benchmark:
    """Import a benchmark."""
    found = importlib.import_module(module_of(name)).BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def add_common_options(parser: argparse.ArgumentParser, repeat: Optional[int] = None) -> None:
    """Add the options of every benchmark; ``repeat`` is the number of timings, None if it is fixed."""
    add = parser.add_argument
    if repeat is not None:
        add("--repeat", type=int, default=repeat, help="timed runs; the median is reported (default: %(default)s)")
    add("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device to measure on (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    add("--smoke", action="store_true", help="measure tiny sizes for a quick check")


def add_size_options(parser: argparse.ArgumentParser, **sizes: int) -> None:
    """Add the options of the sizes of language models, with their defaults."""
    for name, size in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=size, help=f"{SIZES[name]} (default: %(default)s)")


def add_sweep_options(parser: argparse.ArgumentParser, dtypes: Sequence[str]) -> None:
    """Add the options of benchmarks that pass over many measurements several times, in one of some precisions."""
    of = "dtype of all tensors" + ("; autocast: float32 under autocast to bfloat16" if "autocast" in dtypes else "")
    parser.add_argument("--dtype", choices=dtypes, default="float32", help=f"{of} (default: %(default)s)")
    sweeps = "passes; the fastest median counts (default: %(default)s)"
    parser.add_argument("--sweeps", type=int, default=2, help=sweeps)
    add_rows_options(parser)


def add_rows_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of benchmarks whose measurements are stored in ``Rows``."""
    add = parser.add_argument
    rows = "record each measurement here at once, and skip those recorded before"
    add("--rows", type=Path, metavar="FILE", help=rows)
    add("--stop-after", type=float, metavar="SECONDS", help="start no measurement after this time; exit with status 75")


def numbers_of(given: str) -> List[int]:
    """Split a comma-separated option into its numbers."""
    return [int(number) for number in given.split(",")]


def chosen_of(given: str, option: str, known: Sequence[str]) -> Sequence[str]:
    """Split a comma-separated option into its names; raise ValueError if one is unknown."""
    names = given.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"{option} {given}: {unknown[0]!r} is unknown, choose from {', '.join(known)}")
    return names


def build_parser(names: Sequence[str] = NAMES) -> argparse.ArgumentParser:
    """Return the parser of these benchmarks, of all if none are passed."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_mega.lab.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name in names:
        benchmark = find(name)
        add_described(commands, name, benchmark.description, benchmark.add_options)
    return parser


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; its options override the options that --smoke implies."""
    parser = build_parser(given[:1] if given and given[0] in NAMES else NAMES)
    arguments = parser.parse_args(given)
    if getattr(arguments, "smoke", False):
        arguments = parser.parse_args([given[0], *find(given[0]).smoke, *given[1:]])
    arguments.given = list(given)
    return arguments


def main(given: Optional[Sequence[str]] = None) -> None:
    """Run a benchmark; raise SystemExit if it cannot be measured or must be continued."""
    arguments = parse(sys.argv[1:] if given is None else given)
    try:
        if getattr(arguments, "json", None) is not None:
            check_writable("--json", arguments.json)  # before the measurements
        find(arguments.benchmark).run(arguments)
    except (OSError, ValueError) as error:
        raise SystemExit(f"benchmarks {arguments.benchmark}: error: {error}") from error
