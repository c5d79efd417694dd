"""Speed and memory of the operators, a layer, and whole models. Run it on an otherwise idle machine."""

import argparse
import json
import sys
from typing import Dict, Optional, Sequence

from fairseq_mega.benchmarks import chunk_parallel, decoding, device, layer, lm_length, lra_speed
from fairseq_mega.benchmarks.kernels import benchmark as kernels
from fairseq_mega.benchmarks.options import Benchmark
from fairseq_mega.corpora.commands import add_described

BENCHMARKS: Dict[str, Benchmark] = {
    "layer": layer.BENCHMARK,
    "kernels": kernels.BENCHMARK,
    "decoding": decoding.BENCHMARK,
    "lm-length": lm_length.BENCHMARK,
    "chunk-parallel": chunk_parallel.BENCHMARK,
    "lra-speed": lra_speed.BENCHMARK,
    "device": device.BENCHMARK,
}


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_mega.benchmarks", description=__doc__)
    commands = parser.add_subparsers(dest="benchmark", required=True, metavar="BENCHMARK")
    for name, benchmark in BENCHMARKS.items():
        add_described(commands, name, benchmark.description, benchmark.add_options)
    return parser


def parse(given: Sequence[str]) -> argparse.Namespace:
    """Read a command line; the options that --smoke stands for come before those that are given."""
    parser = build_parser()
    arguments = parser.parse_args(given)
    if getattr(arguments, "smoke", False):
        arguments = parser.parse_args([given[0], *BENCHMARKS[given[0]].smoke, *given[1:]])
    arguments.given = list(given)
    return arguments


def main(given: Optional[Sequence[str]] = None) -> None:
    """Run a benchmark; SystemExit where it cannot be measured, or is to be continued."""
    arguments = parse(sys.argv[1:] if given is None else given)
    benchmark = BENCHMARKS[arguments.benchmark]
    part = getattr(arguments, "measure", None)
    if part is None:
        benchmark.run(arguments)
    else:
        assert benchmark.measure is not None, f"{arguments.benchmark} measures nothing in a process of its own"
        print(json.dumps(benchmark.measure(part, arguments)))
