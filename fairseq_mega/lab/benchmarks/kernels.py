"""Time and peak memory of every path of the operators."""

import argparse
from functools import partial
from typing import Any, Callable, Dict, List, Tuple

import torch

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, chosen_of
from fairseq_mega.lab.benchmarks.operators import OPS, PAPER, Shape, leaves, parse_shapes, shrunk

DESCRIPTION = """\
Every measurement runs in a separate process, or in this process on a GPU, whose allocator counts exactly. "speed" and
"memory" compare with the same operator's baseline, forward and backward: the EMA's paths with "DxNxL", the arrangement
of the published code, attention with explicit weights, other operators with torch. A row names operator, shape and
path. The shape is B, D, N, L, z, v, chunk; zeros stand for z = D/2, v = 2 D (v = z without a relative bias, where
torch's SDPA then works without an L x L matrix) and full attention.
"""
SMOKE = ("--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1")
LENGTHS = ",".join(str(2**k) for k in range(8, 17))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--ops", help=f"operators, comma separated, of: {', '.join(OPS)} (default: all)")
    add("--lengths", default=LENGTHS, help="sequence lengths L, comma separated (default: %(default)s)")
    shape = "B,D,N, or B,D,N,L[,z,v,chunk] in place of --lengths (default: %(default)s)"
    add("--shape", default="4,128,16", help=shape)
    add("--preset", choices=["paper"], help="operators and shapes of MEGA's tables")
    add("--shrink", type=int, default=1, help="divide lengths and chunks of a preset by this, with a batch of 1")
    limit = "maximum seconds of a run; longer runs are skipped (default: %(default)s)"
    add("--time-limit", type=float, default=60.0, help=limit)
    add_common_options(parser, repeat=5, sweeps=2, dtypes=["float32", "bfloat16"])


def operators_and_shapes(arguments: argparse.Namespace) -> List[Tuple[str, Shape]]:
    """List the measurements that the options select."""
    chosen = chosen_of(arguments.ops, "--ops", list(OPS)) if arguments.ops else list(OPS)
    if arguments.preset:
        return [(op, shrunk(shape, arguments.shrink)) for op in chosen for ops, shape in PAPER if op in ops]
    return [(op, shape) for op in chosen for shape in parse_shapes(arguments.shape, arguments.lengths)]


def measure(arguments: argparse.Namespace, op: str, path: str, shape: Dict[str, int]) -> measuring.Figures:
    """Measure the seconds of a forward pass and of both passes, and the peak extra memory of both passes."""
    device, run = torch.device(arguments.device), OPS[op].paths[path]

    def prepared(shape: Shape) -> Tuple[Callable[[], Any], Callable[[], Any]]:
        drawn = OPS[op].draw(shape, torch.Generator().manual_seed(1))
        inputs = leaves(drawn, getattr(torch, arguments.dtype), device)
        forward = torch.no_grad()(lambda: run(inputs, shape))
        grad = torch.ones_like(forward())
        both = lambda: torch.autograd.grad(run(inputs, shape), list(inputs.values()), grad, allow_unused=True)
        return forward, both

    whole = Shape(**shape)
    prepared(whole._replace(length=min(64, whole.length), chunk=0))[1]()  # excludes one-time work
    forward, both = prepared(whole)
    found = measuring.time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": measuring.median_seconds(forward, arguments.repeat, device)}


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each operator, shape and path, compared with the operator's baseline."""
    return [
        measuring.Case(
            f"{op} {','.join(map(str, shape))} {path}",
            {"op": op, "path": path, "shape": shape._asdict()},
            against=f"{op} {','.join(map(str, shape))} {OPS[op].baseline}",
            series=f"{op} {path}",
            length=shape.length,
            power=OPS[op].power,
        )
        for op, shape in operators_and_shapes(arguments)
        for path in OPS[op].paths
    ]


def finish(
    arguments: argparse.Namespace, cases: List[measuring.Case], found: Dict[str, measuring.Figures]
) -> measuring.Figures:
    """Return the rows of the tables and pictures of documents."""
    named = ({**case.what, "title": OPS[case.what["op"]].title, "dtype": arguments.dtype} for case in cases)
    return {"rows": [{**row, "skipped": "", **found[case.subject]} for row, case in zip(named, cases)]}


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases, finish=finish), measure, SMOKE)
