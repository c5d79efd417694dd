"""Speed and memory of the operators, a layer, and whole models. Run it on an otherwise idle machine."""

import argparse
import importlib
import sys
from typing import Dict, Optional, Sequence

from fairseq_mega.cli.commands import add_described
from fairseq_mega.lab.benchmarks.options import Benchmark, check_options

# Each measurement is a separate process that imports its benchmark alone: the benchmark of a layer needs no fairseq.
MODULES: Dict[str, str] = {
    "layer": "layer",
    "kernels": "kernels.benchmark",
    "decoding": "decoding",
    "lm-length": "lm_length",
    "chunk-parallel": "chunk_parallel",
    "lra-speed": "lra_speed",
    "peers": "peers.benchmark",
    "device": "device",
}


def module_of(name: str) -> str:
    """Return the module of the benchmark of this name, a key of ``MODULES``."""
    return f"fairseq_mega.lab.benchmarks.{MODULES[name]}"


def find(name: str) -> Benchmark:
    """Import the benchmark of this name, a key of ``MODULES``."""
    found = importlib.import_module(module_of(name)).BENCHMARK
    assert isinstance(found, Benchmark)
    return found


def build_parser(names: Sequence[str] = tuple(MODULES)) -> argparse.ArgumentParser:
    """Return the parser of these benchmarks, of all if none are given."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_mega.lab.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name in names:
        benchmark = find(name)
        add_described(commands, name, benchmark.description, benchmark.add_options)
    return parser


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; its options override the options that --smoke implies."""
    parser = build_parser(given[:1] if given and given[0] in MODULES else tuple(MODULES))
    arguments = parser.parse_args(given)
    if getattr(arguments, "smoke", False):
        arguments = parser.parse_args([given[0], *find(given[0]).smoke, *given[1:]])
    arguments.given = list(given)
    return arguments


def main(given: Optional[Sequence[str]] = None) -> None:
    """Run a benchmark; raise SystemExit if it cannot be measured or must be continued."""
    arguments = parse(sys.argv[1:] if given is None else given)
    benchmark = find(arguments.benchmark)
    check_options(arguments)
    try:
        benchmark.run(arguments)
    except (OSError, ValueError) as error:
        raise SystemExit(f"benchmarks {arguments.benchmark}: error: {error}") from error
