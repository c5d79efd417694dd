#!/usr/bin/env python3
"""Time and peak memory of every path of the operators: EMA, attention, timestep norm; forward and backward.

First every path is compared with the plain reference, outputs and all gradients; nothing is measured or printed if one
differs. Then every measurement runs in a process of its own; on a GPU, whose allocator counts exactly, in this one.
With --rows every measurement is kept as a line of JSON at once, and the same command goes on from there. The EMA's
paths stand beside "DxNxL", the arrangement of the published code; attention beside explicit weights and torch's SDPA.
Run it on an otherwise idle machine.

The column "of limit" is the time that moving the operator's inputs, outputs and gradients once would take, over the
time measured; the machine's bandwidth is that of a copy in torch, measured in the same run. Counted are, in numbers of
the type that is measured: EMA and timestep norm 2 B L D forward (x, y) and 5 B L D with backward (and x, grad y,
grad x); attention 2 B L (z + v) forward (q, k, v, y) and B L (6 z + 5 v) with backward (and q, k, v, grad y, three
gradients), z = D/2 and v = 2 D unless the shape says otherwise (v = z without a relative bias, where torch's SDPA then
works without an L x L matrix).
"speed" and "memory" compare with the same operator's DxNxL, explicit or torch row, forward and backward.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
SMOKE = ["--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1", "--bandwidth-mib=8", "--in-process"]
Row = Dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ops", help="comma separated (default: all): " + "ema, ema-bidirectional, ema-complex, attention, "
        "attention-softmax, attention-laplace, timestep-norm")  # fmt: skip
    lengths = ",".join(str(2**k) for k in range(8, 17))
    add("--lengths", default=lengths, help=f"sequence lengths L, comma separated (default: {lengths})")
    add("--shape", default="4,128,16", help="B,D,N, or B,D,N,L[,z,v,chunk] in place of --lengths (default: 4,128,16)")
    add("--preset", choices=["issue", "paper"], help="issue: the causal EMA at B,D,N,L = 4,128,16,4096 and "
        "1,512,16,8192; paper: operators, widths, lengths and chunks of MEGA's tables")  # fmt: skip
    add("--shrink", type=int, default=1, help="divide lengths and chunks of a preset by this, with a batch of 1")
    add("--dtype", choices=["float32", "bfloat16"], default="float32", help="of all tensors (default: float32)")
    add("--repeat", type=int, default=5, help="timed runs per measurement; the median is reported (default: 5)")
    add("--sweeps", type=int, default=2, help="passes over all measurements; the faster median counts (default: 2)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default: cpu)")
    add("--memory-limit", type=float, help="GiB that one measurement may take (default: 0.7 of what is free)")
    add("--time-limit", type=float, default=60.0, help="skip what would take more seconds per run (default: 60)")
    add("--bandwidth-mib", type=int, default=512, help="size of the copied tensor (default: 512)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--rows", type=Path, help="keep every measurement here at once, a line each, and do not repeat those there")
    add("--stop-after", type=float, help="seconds after which nothing more is measured; the exit status is then 75")
    add("--plot", type=Path, help="also plot the time per token over L to this file (needs matplotlib)")
    add(
        "--in-process",
        action="store_true",
        help="measure in this process: quicker, but memory is unreliable (not on a GPU)",
    )
    add("--smoke", action="store_true", help="tiny sizes, to see that it works: " + " ".join(SMOKE))
    add("--measure", metavar="OP:PATH:SHAPE", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments = parser.parse_args([*SMOKE, *(each for each in sys.argv[1:] if each != "--smoke")])
    return arguments


def operators_and_shapes(arguments: argparse.Namespace) -> List[Tuple[str, Any]]:
    """What is to be measured."""
    from fairseq_mega.benchmarks.kernels.cases import OPS
    from fairseq_mega.benchmarks.kernels.shapes import PRESETS, parse_shapes, shrunk

    chosen = arguments.ops.split(",") if arguments.ops else list(OPS)
    unknown = [op for op in chosen if op not in OPS]
    if unknown:
        sys.exit(f"--ops {arguments.ops}: {unknown[0]!r} is unknown, choose from {', '.join(OPS)}")
    if arguments.preset:
        preset = PRESETS[arguments.preset]
        return [(op, shrunk(shape, arguments.shrink)) for op in chosen for ops, shape in preset if op in ops]
    try:
        shapes = parse_shapes(arguments.shape, arguments.lengths)
    except ValueError as error:
        sys.exit(str(error))
    return [(op, shape) for op in chosen for shape in shapes]


def check(what: List[Tuple[str, Any]], arguments: argparse.Namespace) -> None:
    """Compare all paths with the reference at small sizes; ends the program where one differs."""
    import torch

    from fairseq_mega.benchmarks.kernels.agreement import disagreements
    from fairseq_mega.benchmarks.kernels.cases import OPS
    from fairseq_mega.ops import native

    wrong = []
    small = [(op, shape._replace(batch=2, width=min(shape.width, 64), chunk=0)) for op, shape in what]
    for op, shape in dict.fromkeys((op, shape._replace(length=length)) for op, shape in small for length in (1, 67)):
        for dtype in dict.fromkeys([torch.float32, getattr(torch, arguments.dtype)]):
            wrong += disagreements(OPS[op], shape, torch.device(arguments.device), dtype)
    if wrong:
        sys.exit("nothing is measured, as paths differ from the reference:\n  " + "\n  ".join(wrong))
    print("all paths agree with the reference, outputs and gradients", file=sys.stderr)
    if native.PROBLEM is not None:
        print(f"the compiled kernels are left out: {native.PROBLEM}; {native.REMEDY}", file=sys.stderr)


def measure(what: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Seconds of a forward pass, of a forward and backward pass, and peak extra memory in MiB of the latter."""
    import torch

    from fairseq_mega.benchmarks.kernels.cases import OPS
    from fairseq_mega.benchmarks.kernels.operator import leaves
    from fairseq_mega.benchmarks.kernels.shapes import Shape
    from fairseq_mega.benchmarks.measure import bandwidth, median_seconds, time_and_memory

    device = torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    if what == "bandwidth":
        return {"bandwidth": bandwidth(device, arguments.bandwidth_mib, max(arguments.repeat, 3))}
    op_name, path_name, size = what.split(":")
    op, shape = OPS[op_name], Shape(*(int(number) for number in size.split(",")))
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

    prepared(shape._replace(length=min(64, shape.length), chunk=0))[1]()  # what is loaded once is not charged
    forward, both = prepared(shape)
    found = time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": median_seconds(forward, arguments.repeat, device)}


def measure_apart(what: str, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Run :func:`measure` in a fresh process; on a GPU and with --in-process in this one."""
    import torch

    from fairseq_mega.benchmarks.measure import run_apart

    if arguments.device == "cpu" and (not arguments.in_process or what == "bandwidth"):
        return run_apart(what, arguments, what)
    try:
        return measure(what, arguments)
    except torch.cuda.OutOfMemoryError:
        return {"skipped": "the GPU's memory does not suffice"}
    finally:
        if arguments.device == "cuda":
            torch.cuda.empty_cache()  # what one path keeps must not stand in the way of the next


def obstacle(row: Row, arguments: argparse.Namespace, limit: float, rows: List[Row]) -> str:
    """Why a measurement is left out, or nothing."""
    import torch

    from fairseq_mega.benchmarks.kernels.cases import OPS, missing

    op, shape = OPS[row["op"]], row["shape"]
    path = op.paths[row["path"]]
    problem = missing(path, torch.device(arguments.device))
    if problem:
        return problem
    if path.longest is not None and shape.length > path.longest:
        return f"serves up to {path.longest} steps"
    gib = path.needs(shape) / 2**30
    if gib > limit:
        return f"may need {gib:.0f} GiB, the limit is {limit:.0f} (--memory-limit)"
    for other in rows:
        if (other["op"], other["path"]) == (row["op"], row["path"]) and "seconds" in other:
            growth = shape.length / other["shape"].length
            seconds = other["seconds"] * (growth**2 if op.quadratic else growth)
            if growth > 1 and seconds > arguments.time_limit:
                return f"would take about {seconds:.0f} s a run, the limit is {arguments.time_limit:.0f} (--time-limit)"
    return ""


def sweep(rows: List[Row], arguments: argparse.Namespace, limit: float, number: int, kept: Any) -> None:
    """Measure every row once more and keep the faster result; leave out what does not fit."""
    from fairseq_mega.benchmarks.measure import keep_the_faster

    for index, row in enumerate(rows):
        if number == 0:
            row["skipped"] = obstacle(row, arguments, limit, rows[:index])
        if row["skipped"]:
            continue
        what = {"op": row["op"], "path": row["path"], "shape": row["shape"]._asdict(), "sweep": number + 1}
        found = kept.find(**what)
        if found is None:
            name = f"{row['op']}:{row['path']}:{','.join(map(str, row['shape']))}"
            print(f"sweep {number + 1} of {arguments.sweeps}: {name}", file=sys.stderr)
            found = kept.add(measure_apart(name, arguments), **what)
        if "skipped" in found:
            row["skipped"] = found["skipped"]
            continue
        row.update(keep_the_faster({key: row.get(key, value) for key, value in found.items()}, found))


def table(rows: List[Row], bandwidth: float, size: int) -> str:
    """The measurements as a Markdown table, with ratios to each operator's baseline; a number has ``size`` bytes."""
    from fairseq_mega.benchmarks.kernels.cases import OPS

    lines = [
        "| operator | B, D, N, L[, z, v, chunk] | path | forward ms | of limit | forward + backward ms | of limit "
        "| speed | peak MiB | memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        op, shape = OPS[row["op"]], row["shape"]
        sizes = ", ".join(map(str, shape if any(shape[4:]) else shape[:4]))
        head = f"| {op.title} | {sizes} | {row['path']} |"
        if row["skipped"]:
            lines.append(f"{head} skipped: {row['skipped']} | | | | | | |")
            continue
        base = next(
            (other for other in rows if (other["op"], other["shape"], other["path"]) == (*key(row), op.baseline)), {}
        )
        speed = memory = "-"
        if "seconds" in base:
            speed = f"{base['seconds'] / row['seconds']:.2f}x"
            memory = f"{row['memory_mib'] / max(base['memory_mib'], 1e-9):.2f}x"
        forward = size * op.forward(shape) / bandwidth
        both = forward + size * op.backward(shape) / bandwidth
        lines.append(
            f"{head} {1e3 * row['forward_seconds']:.2f} | {forward / row['forward_seconds']:.2f} "
            f"| {1e3 * row['seconds']:.2f} | {both / row['seconds']:.2f} | {speed} "
            f"| {row['memory_mib']:.0f} | {memory} |"
        )
    return "\n".join(lines)


def key(row: Row) -> Tuple[str, Any]:
    return row["op"], row["shape"]


def write_json(rows: List[Row], bandwidth: float, arguments: argparse.Namespace) -> None:
    """The measurements as a result file; what was skipped stands in it with the reason."""
    from fairseq_mega.benchmarks.measure import write_measurements

    scores = {"bandwidth": bandwidth}
    for row in rows:
        for name in ("seconds", "forward_seconds", "memory_mib"):
            if name in row:
                scores[f"{row['op']} {','.join(map(str, row['shape']))} {row['path']} {name}"] = row[name]
    measured = sum(1 for row in rows if not row["skipped"])
    records = [{**row, "shape": row["shape"]._asdict()} for row in rows]
    write_measurements(arguments, "kernels", scores, examples=measured, rows=records)


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(ROOT))
    if arguments.plot:
        from fairseq_mega.reports.plotting import load_pyplot

        load_pyplot()  # without matplotlib, say so before anything is measured
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments)))
        return
    import torch

    from fairseq_mega.benchmarks.kernels.cases import OPS
    from fairseq_mega.benchmarks.measure import available_gib
    from fairseq_mega.benchmarks.rows import Rows

    what = operators_and_shapes(arguments)
    torch.set_num_threads(arguments.threads)
    check(what, arguments)
    rows: List[Row] = [
        {"op": op, "path": path, "shape": shape, "title": OPS[op].title, "dtype": arguments.dtype}
        for op, shape in what
        for path in OPS[op].paths
    ]
    limit = arguments.memory_limit or 0.7 * available_gib(torch.device(arguments.device))
    settings = {name: getattr(arguments, name) for name in ("device", "dtype", "threads", "repeat")}
    kept = Rows(arguments.rows, settings, arguments.stop_after)
    bandwidth = 0.0
    for number in range(arguments.sweeps):
        moved = kept.find(op="bandwidth", mib=arguments.bandwidth_mib, sweep=number + 1)
        if moved is None:
            moved = measure_apart("bandwidth", arguments)
            kept.add(moved, op="bandwidth", mib=arguments.bandwidth_mib, sweep=number + 1)
        bandwidth = max(bandwidth, moved["bandwidth"])
        sweep(rows, arguments, limit, number, kept)
    if all(row["skipped"] for row in rows):
        sys.exit("nothing could be measured:\n  " + "\n  ".join(sorted({row["skipped"] for row in rows})))
    print(table(rows, bandwidth, getattr(torch, arguments.dtype).itemsize))
    speed = f"{bandwidth / 1e9:.1f} GB/s"
    where = f"{arguments.dtype}, {arguments.threads} thread(s), {arguments.device}"
    print(f"\n{where}; a copy moves {speed} (read and written).")
    write_json(rows, bandwidth, arguments)
    if arguments.plot:
        from fairseq_mega.reports.kernels import plot_rows

        plot_rows([{**row, "shape": row["shape"]._asdict()} for row in rows], arguments.plot)


if __name__ == "__main__":
    main()
