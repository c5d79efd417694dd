"""The command that measures the operators."""

import argparse
import sys
from pathlib import Path
from typing import List, Tuple

import torch

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.kernels import measurements
from fairseq_mega.lab.benchmarks.kernels.agreement import disagreements
from fairseq_mega.lab.benchmarks.kernels.cases import OPS
from fairseq_mega.lab.benchmarks.kernels.shapes import PRESETS, Shape, parse_shapes, shrunk
from fairseq_mega.lab.benchmarks.kernels.table import table, write_json
from fairseq_mega.lab.benchmarks.kernels_report import plot_rows
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, add_sweep_options, chosen_of
from fairseq_mega.lab.benchmarks.rows import Rows
from fairseq_mega.lab.runs.plotting import load_pyplot
from fairseq_mega.ops.common import native

DESCRIPTION = """\
Time and peak memory of every path of the operators: EMA, attention, linear maps, timestep norm; forward and backward.

First, outputs and all gradients of every path are compared with the plain reference; nothing is measured if one
differs. Then every measurement runs in a separate process, or in this process on a GPU, whose allocator counts exactly.
With --rows every measurement is written as a line of JSON at once, and the same command continues. The EMA's paths are
compared with "DxNxL", the arrangement of the published code; attention with explicit weights and torch's SDPA.

The column "of limit" is the time to move the operator's inputs, outputs and gradients once, over the time measured. The
machine's bandwidth is that of a copy in torch, measured in the same run. The counts, in numbers of the measured type:
EMA and timestep norm 2 B L D forward (x, y) and 5 B L D with backward (and x, grad y, grad x); attention 2 B L (z + v)
forward (q, k, v, y) and B L (6 z + 5 v) with backward (and q, k, v, grad y, three gradients), z = D/2 and v = 2 D
unless the shape says otherwise (v = z without a relative bias, where torch's SDPA then works without an L x L matrix).
"GFLOP/s" counts the multiplications and additions of matrix products, over the time of both directions: attention's are
2 z + 2 v a weight forward and 6 z + 4 v backward, those of a linear map from D to v 2 D v a row forward and 4 D v
backward. Their limit is what the processor multiplies and adds in registers, measured in the same run.
"speed" and "memory" compare with the same operator's DxNxL, explicit or torch row, forward and backward.
"""
SMOKE = ("--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1", "--bandwidth-mib=8", "--in-process")
LENGTHS = ",".join(str(2**k) for k in range(8, 17))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--ops", help=f"operators, comma separated, of: {', '.join(OPS)} (default: all)")
    add("--lengths", default=LENGTHS, help="sequence lengths L, comma separated (default: %(default)s)")
    add(
        "--shape", default="4,128,16", help="B,D,N, or B,D,N,L[,z,v,chunk] in place of --lengths (default: %(default)s)"
    )
    add(
        "--preset",
        choices=list(PRESETS),
        help="issue: the causal EMA at B,D,N,L = 4,128,16,4096 and 1,512,16,8192; chunks: attention in chunks of 128 "
        "and 1024; linear: the projections of those layers; paper: operators and shapes of MEGA's tables",
    )
    add("--shrink", type=int, default=1, help="divide lengths and chunks of a preset by this, with a batch of 1")
    add("--memory-limit", type=float, help="maximum GiB of one measurement (default: 0.7 of the free memory)")
    add(
        "--time-limit",
        type=float,
        default=60.0,
        help="maximum seconds of a run; longer runs are skipped (default: %(default)s)",
    )
    add("--bandwidth-mib", type=int, default=512, help="size of the copied tensor (default: %(default)s)")
    add("--plot", type=Path, help="also plot the time per token over L to this file (needs matplotlib)")
    add(
        "--in-process",
        action="store_true",
        help="measure in this process: faster, but peak memory is unreliable on a CPU",
    )
    add_sweep_options(parser)
    add_common_options(parser, repeat=5)


def operators_and_shapes(arguments: argparse.Namespace) -> List[Tuple[str, Shape]]:
    """List the measurements that the options select."""
    chosen = chosen_of(arguments.ops, "--ops", list(OPS)) if arguments.ops else list(OPS)
    if arguments.preset:
        preset = PRESETS[arguments.preset]
        return [(op, shrunk(shape, arguments.shrink)) for op in chosen for ops, shape in preset if op in ops]
    try:
        shapes = parse_shapes(arguments.shape, arguments.lengths)
    except ValueError as error:
        sys.exit(str(error))
    return [(op, shape) for op in chosen for shape in shapes]


def check(chosen: List[Tuple[str, Shape]], arguments: argparse.Namespace) -> None:
    """Compare all paths with the reference at small sizes; raise SystemExit if one differs."""
    wrong = []
    small = [(op, shape._replace(batch=2, width=min(shape.width, 64), chunk=0)) for op, shape in chosen]
    for op, shape in dict.fromkeys((op, shape._replace(length=length)) for op, shape in small for length in (1, 67)):
        for dtype in dict.fromkeys([torch.float32, getattr(torch, arguments.dtype)]):
            wrong += disagreements(OPS[op], shape, torch.device(arguments.device), dtype)
    if wrong:
        sys.exit("nothing is measured, because paths differ from the reference:\n  " + "\n  ".join(wrong))
    print("all paths agree with the reference, outputs and gradients", file=sys.stderr)
    if native.PROBLEM is not None:
        print(f"the compiled kernels are not measured: {native.PROBLEM}; {native.REMEDY}", file=sys.stderr)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per operator, shape and path, write the result file, and draw the plot."""
    if arguments.plot:
        load_pyplot()  # raises without matplotlib, before anything is measured
    chosen = operators_and_shapes(arguments)
    torch.set_num_threads(arguments.threads)
    check(chosen, arguments)
    rows: List[measurements.Row] = [
        {"op": op, "path": path, "shape": shape, "title": OPS[op].title, "dtype": arguments.dtype}
        for op, shape in chosen
        for path in OPS[op].paths
    ]
    limit = arguments.memory_limit or 0.7 * measuring.available_gib(torch.device(arguments.device))
    settings = {name: getattr(arguments, name) for name in ("device", "dtype", "threads", "repeat")}
    kept = Rows(arguments.rows, settings, arguments.stop_after)
    bandwidth = 0.0
    for number in range(arguments.sweeps):
        moved = kept.find(op="bandwidth", mib=arguments.bandwidth_mib, sweep=number + 1)
        if moved is None:
            moved = measurements.measure_apart("bandwidth", arguments)
            kept.add(moved, op="bandwidth", mib=arguments.bandwidth_mib, sweep=number + 1)
        bandwidth = max(bandwidth, moved["bandwidth"])
        measurements.sweep(rows, arguments, limit, number, kept)
    if all(row["skipped"] for row in rows):
        sys.exit("nothing could be measured:\n  " + "\n  ".join(sorted({row["skipped"] for row in rows})))
    print(table(rows, bandwidth, getattr(torch, arguments.dtype).itemsize))
    speed = f"{bandwidth / 1e9:.1f} GB/s"
    where = f"{arguments.dtype}, {arguments.threads} thread(s), {arguments.device}"
    peak = measuring.float32_peak(arguments.threads) if arguments.device == "cpu" else None
    limit_of_products = "" if peak is None else f"; float32 in registers: {peak / 1e9:.0f} GFLOP/s"
    print(f"\n{where}; a copy moves {speed} (read and written){limit_of_products}.")
    write_json(rows, bandwidth, arguments)
    if arguments.plot:
        plot_rows([{**row, "shape": row["shape"]._asdict()} for row in rows], arguments.plot)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measurements.measure, SMOKE)
