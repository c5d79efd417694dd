"""Speed and memory of the operators, a layer, and whole models. Run it on an otherwise idle machine."""

import argparse
import importlib
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from fairseq_mega.cli.commands import add_described, exit_status
from fairseq_mega.lab.runs.files import check_writable
from fairseq_mega.lab.runs.options import flag

# The help of all benchmarks is printed without torch; each measurement is a process that imports its benchmark alone.
BENCHMARKS = {
    "layer": "Time and peak memory of one MEGA layer against a Transformer layer of the same width, forward and "
    "backward.",
    "kernels": "Time and peak memory of every path of the operators: EMA, attention, timestep norm; "
    "forward and backward.",
    "decoding": "Speed of decoding at several positions of a text: MEGA's language model and fairseq's transformer_lm.",
    "lm-length": "Training speed and peak memory of language models over the length of their blocks, with and without "
    "chunks.",
    "lra-speed": "Speed and memory columns of MEGA's Table 2: training on the Text task of the Long Range Arena with "
    "4K input.",
    "peers": "Training speed and peak memory of language models, compared with megalodon-jax and with the published "
    "arrangement.",
    "launches": "Kernels that a layer launches on a GPU in a forward pass, a backward pass and a single step of "
    "decoding, by operator.",
}
NUMBERS = {  # options of several benchmarks
    "width": "width d",
    "layers": "number of layers",
    "chunk": "attention chunk of models with chunks",
    "symbols": "size of the dictionary",
    "batch": "texts in a batch",
    "length": "tokens of a text",
    "embed_dim": "width d of all layers",
    "hidden_dim": "MEGA: width v of values and FFN",
    "z_dim": "MEGA: width z of queries and keys",
    "n_dim": "MEGA: EMA dimensions N",
    "chunk_size": "MEGA-chunk: attention chunk C",
    "heads": "Transformer: heads; its FFN is 4 d wide",
}


class Benchmark(NamedTuple):
    """A subcommand of ``python -m fairseq_mega.lab.benchmarks``, whose first line of help is in ``BENCHMARKS``."""

    description: str
    add_options: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], None]
    # Measures a case from the options and the case's ``what``, see :func:`fairseq_mega.lab.benchmarks.measuring.run`.
    measure: Optional[Callable[..., Dict[str, Any]]] = None
    smoke: Sequence[str] = ()  # options that --smoke implies; the command line overrides them


def module_of(name: str) -> str:
    """Return the module of a benchmark."""
    return f"fairseq_mega.lab.benchmarks.{name.replace('-', '_')}"


def find(name: str) -> Benchmark:
    """Import a benchmark."""
    found = importlib.import_module(module_of(name)).BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def add_common_options(
    parser: argparse.ArgumentParser,
    repeat: Optional[int] = None,
    sweeps: Optional[int] = None,
    dtypes: Sequence[str] = (),
) -> None:
    """Add the options of every benchmark.

    Args:
        parser: of the benchmark.
        repeat: number of timings of a measurement, None if it is fixed.
        sweeps: number of passes over all measurements, None for a benchmark that measures nothing.
        dtypes: the precisions to choose from.
    """
    add = parser.add_argument
    if dtypes:
        of = "dtype of all tensors" + ("; autocast: float32 under autocast to bfloat16" * ("autocast" in dtypes))
        add("--dtype", choices=dtypes, default="float32", help=f"{of} (default: %(default)s)")
    if repeat is not None:
        add("--repeat", type=int, default=repeat, help="timed runs; the median is reported (default: %(default)s)")
    if sweeps is not None:
        add("--sweeps", type=int, default=sweeps, help="passes; the fastest median counts (default: %(default)s)")
        rows = "record each measurement here at once, and skip those recorded before"
        add("--rows", type=Path, metavar="FILE", help=rows)
        stop = "start no measurement after this time; exit with status 75"
        add("--stop-after", type=float, metavar="SECONDS", help=stop)
    add("--threads", type=int, default=1, help="CPU threads (default: %(default)s)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="device to measure on (default: %(default)s)")
    add("--json", type=Path, metavar="FILE", help="also write the measurements to this file")
    add("--smoke", action="store_true", help="measure tiny sizes for a quick check, in this process")


def add_numbers(parser: argparse.ArgumentParser, **defaults: int) -> None:
    """Add some options of ``NUMBERS`` with their defaults."""
    for name, default in defaults.items():
        parser.add_argument(flag(name), type=int, default=default, help=f"{NUMBERS[name]} (default: %(default)s)")


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


def build_parser(name: str = "") -> argparse.ArgumentParser:
    """Return the parser with the options of one benchmark, or of all benchmarks without their options."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_mega.lab.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for other, first in BENCHMARKS.items():
        if other == name:
            benchmark = find(name)
            add_described(commands, name, f"{first}\n\n{benchmark.description}", benchmark.add_options)
        else:
            commands.add_parser(other, help=first)
    return parser


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; its options override the options that --smoke implies."""
    name = given[0] if given and given[0] in BENCHMARKS else ""
    parser = build_parser(name)
    arguments = parser.parse_args(given)
    if arguments.smoke:
        arguments = parser.parse_args([name, *find(name).smoke, *given[1:]])
    arguments.given = list(given)
    return arguments


def run(arguments: argparse.Namespace) -> None:
    """Run a benchmark; raise SystemExit if it must be continued."""
    if arguments.json is not None:
        check_writable("--json", arguments.json)  # before the measurements
    find(arguments.benchmark).run(arguments)


def main(given: Optional[Sequence[str]] = None) -> None:
    """Run the command line; raise SystemExit after an error message."""
    arguments = parse(sys.argv[1:] if given is None else given)
    status = exit_status(f"benchmarks {arguments.benchmark}", lambda: run(arguments))
    if status:
        raise SystemExit(status)
