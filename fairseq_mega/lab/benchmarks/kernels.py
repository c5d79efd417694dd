"""Time and peak memory of every path of the operators."""

import argparse
import sys
from functools import partial
from typing import Any, Dict, List, Tuple

import torch

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_sweep_options, chosen_of, numbers_of
from fairseq_mega.lab.benchmarks.operators import OPS, PAPER, Shape, leaves, missing, parse_shapes, shrunk
from fairseq_mega.ops.common import native

Row = Dict[str, Any]
DESCRIPTION = """\
Every measurement runs in a separate process, or in this process on a GPU, whose allocator counts exactly. With --rows
every measurement is written as a line of JSON at once, and the same command continues. The EMA's paths are compared
with "DxNxL", the arrangement of the published code; attention with explicit weights and torch's SDPA.

The column "of limit" is the time to move the operator's inputs, outputs and gradients once, over the time measured. The
machine's bandwidth is that of a copy in torch, measured in the same run. The counts, in numbers of the measured type:
EMA and timestep norm 2 B L D forward (x, y) and 5 B L D with backward (and x, grad y, grad x); attention 2 B L (z + v)
forward (q, k, v, y) and B L (6 z + 5 v) with backward (and q, k, v, grad y, three gradients), z = D/2 and v = 2 D
unless the shape sets them (v = z without a relative bias, where torch's SDPA then works without an L x L matrix).
"GFLOP/s" counts the multiplications and additions of matrix products, over the time of both directions: attention's are
2 z + 2 v a weight forward and 6 z + 4 v backward, those of a linear map from D to v 2 D v a row forward and 4 D v
backward. Their limit is what the processor multiplies and adds in registers, measured in the same run.
"speed" and "memory" compare with the same operator's DxNxL, explicit or torch row, forward and backward.
"""
SMOKE = ("--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1")  # all in this process
COPIED_MIB = 512  # of the tensor whose copy measures the bandwidth
LENGTHS = ",".join(str(2**k) for k in range(8, 17))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``kernels``."""
    add = parser.add_argument
    add("--ops", help=f"operators, comma separated, of: {', '.join(OPS)} (default: all)")
    add("--lengths", default=LENGTHS, help="sequence lengths L, comma separated (default: %(default)s)")
    add(
        "--shape", default="4,128,16", help="B,D,N, or B,D,N,L[,z,v,chunk] in place of --lengths (default: %(default)s)"
    )
    add("--preset", choices=["paper"], help="operators and shapes of MEGA's tables")
    add("--shrink", type=int, default=1, help="divide lengths and chunks of a preset by this, with a batch of 1")
    limit = "maximum GiB of one measurement, as estimated from shorter ones (default: 0.7 of the free memory)"
    add("--memory-limit", type=float, help=limit)
    limit = "maximum seconds of a run; longer runs are skipped (default: %(default)s)"
    add("--time-limit", type=float, default=60.0, help=limit)
    add_sweep_options(parser, ["float32", "bfloat16"])
    add_common_options(parser, repeat=5)


def operators_and_shapes(arguments: argparse.Namespace) -> List[Tuple[str, Shape]]:
    """List the measurements that the options select."""
    chosen = chosen_of(arguments.ops, "--ops", list(OPS)) if arguments.ops else list(OPS)
    if arguments.preset:
        return [(op, shrunk(shape, arguments.shrink)) for op in chosen for ops, shape in PAPER if op in ops]
    return [(op, shape) for op in chosen for shape in parse_shapes(arguments.shape, arguments.lengths)]


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure the seconds of a forward pass and of both passes, and the peak extra memory in MiB of both passes."""
    device = torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    if part == "bandwidth":
        mib = 8 if arguments.smoke else COPIED_MIB
        return {"bandwidth": measuring.bandwidth(device, mib, max(arguments.repeat, 3))}
    op_name, path_name, size = part.split(":")
    op, shape = OPS[op_name], Shape(*numbers_of(size))
    path = op.paths[path_name]

    def prepared(shape: Any) -> Tuple[Any, Any]:
        inputs = leaves(op.draw(shape, torch.Generator().manual_seed(1)), getattr(torch, arguments.dtype), device)

        def forward() -> Any:
            with torch.no_grad():
                return path.run(inputs, shape)

        grad = torch.ones_like(forward())

        def both() -> None:
            torch.autograd.grad(path.run(inputs, shape), list(inputs.values()), grad, allow_unused=True)

        return forward, both

    prepared(shape._replace(length=min(64, shape.length), chunk=0))[1]()  # excludes one-time work
    forward, both = prepared(shape)
    found = measuring.time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": measuring.median_seconds(forward, arguments.repeat, device)}


def measure_fitting(part: str, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Measure a part, in a fresh process except on a GPU and with --smoke; "skipped" if a GPU's memory is too small."""
    try:
        return (measuring.run_here if arguments.smoke else measuring.run_once)(part, arguments)
    except torch.cuda.OutOfMemoryError:
        return {"skipped": "the GPU's memory does not suffice"}


def reason_to_skip(row: Row, arguments: argparse.Namespace, limit: float, rows: List[Row]) -> str:
    """Return the reason to omit a measurement, from the measurements of shorter lengths; or nothing."""
    op, shape = OPS[row["op"]], row["shape"]
    path = op.paths[row["path"]]
    problem = missing(path, torch.device(arguments.device))
    if problem:
        return problem
    if path.longest is not None and shape.length > path.longest:
        return f"accepts up to {path.longest} steps"
    for other in rows:
        if (other["op"], other["path"]) == (row["op"], row["path"]) and "seconds" in other:
            growth = (shape.length / other["shape"].length) ** (2 if op.quadratic else 1)
            seconds, gib = other["seconds"] * growth, other["memory_mib"] * growth / 2**10
            if growth > 1 and seconds > arguments.time_limit:
                return f"would take about {seconds:.0f} s a run, the limit is {arguments.time_limit:.0f} (--time-limit)"
            if growth > 1 and gib > limit:
                return f"may need {gib:.0f} GiB, the limit is {limit:.0f} (--memory-limit)"
    return ""


def sweep(rows: List[Row], arguments: argparse.Namespace, limit: float, number: int, kept: measuring.Rows) -> None:
    """Measure every row once more and keep the faster result; omit rows that do not fit."""
    for index, row in enumerate(rows):
        if number == 0:
            row["skipped"] = reason_to_skip(row, arguments, limit, rows[:index])
        if row["skipped"]:
            continue
        subject = {"op": row["op"], "path": row["path"], "shape": row["shape"]._asdict(), "sweep": number + 1}
        part = f"{row['op']}:{row['path']}:{','.join(map(str, row['shape']))}"
        found = kept.of(partial(measure_fitting, part, arguments), **subject)
        if "skipped" in found:
            row["skipped"] = found["skipped"]
            continue
        row.update(measuring.keep_the_faster(row, found))


def table(rows: List[Row], bandwidth: float, size: int) -> str:
    """Return the measurements as a Markdown table, with ratios to each operator's baseline; a number has ``size``
    bytes.
    """
    lines = [
        "| operator | B, D, N, L[, z, v, chunk] | path | forward ms | of limit | forward + backward ms | of limit "
        "| GFLOP/s | speed | peak MiB | memory |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        op, shape = OPS[row["op"]], row["shape"]
        sizes = ", ".join(map(str, shape if any(shape[4:]) else shape[:4]))
        head = f"| {op.title} | {sizes} | {row['path']} |"
        if row["skipped"]:
            lines.append(f"{head} skipped: {row['skipped']} | | | | | | | |")
            continue
        baseline_key = (row["op"], shape, op.baseline)
        base: Row = next((other for other in rows if (other["op"], other["shape"], other["path"]) == baseline_key), {})
        speed = memory = flops = "-"
        if op.products is not None:
            flops = f"{op.products(shape) / row['seconds'] / 1e9:.0f}"
        if "seconds" in base:
            speed = f"{base['seconds'] / row['seconds']:.2f}x"
            memory = f"{row['memory_mib'] / max(base['memory_mib'], 1e-9):.2f}x"
        forward = size * op.forward(shape) / bandwidth
        both = forward + size * op.backward(shape) / bandwidth
        lines.append(
            f"{head} {1e3 * row['forward_seconds']:.2f} | {forward / row['forward_seconds']:.2f} "
            f"| {1e3 * row['seconds']:.2f} | {both / row['seconds']:.2f} | {flops} | {speed} "
            f"| {row['memory_mib']:.0f} | {memory} |"
        )
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per operator, shape and path, and write the result file."""
    chosen = operators_and_shapes(arguments)
    torch.set_num_threads(arguments.threads)
    if native.PROBLEM is not None:
        print(f"the compiled kernels are not measured: {native.PROBLEM}; {native.REMEDY}", file=sys.stderr)
    rows: List[Row] = [
        {"op": op, "path": path, "shape": shape, "title": OPS[op].title, "dtype": arguments.dtype}
        for op, shape in chosen
        for path in OPS[op].paths
    ]
    limit = arguments.memory_limit or 0.7 * measuring.available_gib(torch.device(arguments.device))
    settings = {name: getattr(arguments, name) for name in ("device", "dtype", "threads", "repeat")}
    kept = measuring.Rows(arguments, settings)
    bandwidth = 0.0
    for number in range(arguments.sweeps):
        moved = kept.of(partial(measure_fitting, "bandwidth", arguments), op="bandwidth", sweep=number + 1)
        bandwidth = max(bandwidth, moved["bandwidth"])
        sweep(rows, arguments, limit, number, kept)
    if all(row["skipped"] for row in rows):
        raise ValueError("nothing could be measured:\n  " + "\n  ".join(sorted({row["skipped"] for row in rows})))
    print(table(rows, bandwidth, getattr(torch, arguments.dtype).itemsize))
    speed = f"{bandwidth / 1e9:.1f} GB/s"
    where = f"{arguments.dtype}, {arguments.threads} thread(s), {arguments.device}"
    peak = measuring.float32_peak(arguments.threads) if arguments.device == "cpu" else None
    limit_of_products = "" if peak is None else f"; float32 in registers: {peak / 1e9:.0f} GFLOP/s"
    print(f"\n{where}; a copy moves {speed} (read and written){limit_of_products}.")
    scores = {"bandwidth": bandwidth}
    for row in rows:
        subject = f"{row['op']} {','.join(map(str, row['shape']))} {row['path']}"
        names = ("seconds", "forward_seconds", "memory_mib")
        scores.update({f"{subject} {name}": row[name] for name in names if name in row})
    measured = sum(1 for row in rows if not row["skipped"])
    records = [{**row, "shape": row["shape"]._asdict()} for row in rows]
    measuring.write_measurements(arguments, scores, examples=measured, rows=records)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
