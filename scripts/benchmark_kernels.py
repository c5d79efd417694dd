#!/usr/bin/env python3
"""Time and peak memory of every path of the operators: EMA, attention, timestep norm; forward and backward.

First every path is compared with the plain reference, outputs and all gradients; nothing is measured or printed if one
differs. Then every measurement runs in a process of its own. The EMA's paths stand beside "DxNxL", the arrangement of
the published code; attention beside explicit weights and torch's SDPA. Run it on an otherwise idle machine.

The column "of limit" is the time that moving the operator's inputs, outputs and gradients once would take, over the
time measured; the machine's bandwidth is that of a copy in torch, measured in the same run. Counted are, in float32:
EMA and timestep norm 2 B L D forward (x, y) and 5 B L D with backward (and x, grad y, grad x); attention 2 B L (z + v)
forward (q, k, v, y) and B L (6 z + 5 v) with backward (and q, k, v, grad y, three gradients), z = D/2, v = 2 D
(v = z without a relative bias, where torch's SDPA then works without an L x L matrix).
"speed" and "memory" compare with the same operator's DxNxL, explicit or torch row, forward and backward.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
# The shapes that the project states its aims for, as B, D, N, L.
PRESETS = {"issue": (["ema"], [(4, 128, 16, 4096), (1, 512, 16, 8192)])}
SMOKE = ["--lengths=64", "--shape=2,32,4", "--repeat=1", "--sweeps=1", "--bandwidth-mib=8", "--in-process"]
Row = Dict[str, Any]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--ops", help="comma separated (default: all): " + "ema, ema-bidirectional, ema-complex, attention, "
        "attention-softmax, attention-laplace, timestep-norm")  # fmt: skip
    lengths = ",".join(str(2**k) for k in range(8, 17))
    add("--lengths", default=lengths, help=f"sequence lengths L, comma separated (default: {lengths})")
    add("--shape", default="4,128,16", help="B,D,N, or B,D,N,L in place of --lengths (default: 4,128,16)")
    add("--preset", choices=sorted(PRESETS), help="issue: the causal EMA at B,D,N,L = 4,128,16,4096 and 1,512,16,8192")
    add("--repeat", type=int, default=5, help="timed runs per measurement; the median is reported (default: 5)")
    add("--sweeps", type=int, default=2, help="passes over all measurements; the faster median counts (default: 2)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default: cpu)")
    add("--memory-limit", type=float, help="GiB that one measurement may take (default: 0.7 of what is free)")
    add("--time-limit", type=float, default=60.0, help="skip what would take more seconds per run (default: 60)")
    add("--bandwidth-mib", type=int, default=512, help="size of the copied tensor (default: 512)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--plot", type=Path, help="also plot the time per token over L to this file (needs matplotlib)")
    add("--in-process", action="store_true", help="measure in this process: quicker, but memory is unreliable")
    add("--smoke", action="store_true", help="tiny sizes, to see that it works: " + " ".join(SMOKE))
    add("--measure", metavar="OP:PATH:B,D,N,L", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments = parser.parse_args([*SMOKE, *(each for each in sys.argv[1:] if each != "--smoke")])
    return arguments


def shapes_and_ops(arguments: argparse.Namespace) -> Tuple[List[Any], List[str]]:
    """What is to be measured."""
    from fairseq_mega.cli.kernel_cases import OPS, Shape

    try:
        if arguments.preset:
            ops, shapes = PRESETS[arguments.preset]
        else:
            ops = list(OPS)
            numbers = [int(number) for number in arguments.shape.split(",")]
            lengths = numbers[3:] or [int(length) for length in arguments.lengths.split(",")]
            batch, width, n = numbers[:3]
            shapes = [(batch, width, n, length) for length in lengths]
        checked = [Shape(*shape) for shape in shapes]
        if min(min(shape) for shape in checked) < 1:
            raise ValueError
    except (TypeError, ValueError):
        sys.exit("--shape takes B,D,N or B,D,N,L and --lengths a list, all at least 1, as in --shape 4,128,16")
    ops = arguments.ops.split(",") if arguments.ops else ops
    unknown = [op for op in ops if op not in OPS]
    if unknown:
        sys.exit(f"--ops {arguments.ops}: {unknown[0]!r} is unknown, choose from {', '.join(OPS)}")
    return checked, ops


def check(ops: List[str], shapes: List[Any], arguments: argparse.Namespace) -> None:
    """Compare all paths with the reference at small sizes; ends the program where one differs."""
    import torch

    from fairseq_mega.cli.kernel_cases import OPS, disagreements
    from fairseq_mega.ops import native

    wrong = []
    for width, n in sorted({(min(shape.width, 64), shape.n) for shape in shapes}):
        for op in ops:
            for length in (1, 67):
                small = shapes[0]._replace(batch=2, width=width, n=n, length=length)
                wrong += disagreements(OPS[op], small, torch.device(arguments.device))
    if wrong:
        sys.exit("nothing is measured, as paths differ from the reference:\n  " + "\n  ".join(wrong))
    print("all paths agree with the reference, outputs and gradients", file=sys.stderr)
    if native.PROBLEM is not None:
        print(f"the compiled kernels are left out: {native.PROBLEM}; {native.REMEDY}", file=sys.stderr)


def measure(what: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Seconds of a forward pass, of a forward and backward pass, and peak extra memory in MiB of the latter."""
    import torch

    from fairseq_mega.cli.kernel_cases import OPS, Shape, leaves
    from fairseq_mega.cli.measure import bandwidth, median_seconds, time_and_memory

    device = torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    if what == "bandwidth":
        return {"bandwidth": bandwidth(device, arguments.bandwidth_mib, max(arguments.repeat, 3))}
    op_name, path_name, size = what.split(":")
    op, shape = OPS[op_name], Shape(*(int(number) for number in size.split(",")))
    path = op.paths[path_name]

    def prepared(shape: Any) -> Tuple[Any, Any]:
        inputs = leaves(op.draw(shape, torch.Generator().manual_seed(1)), torch.float32, device)

        def forward() -> Any:
            with torch.no_grad():
                return path.run(inputs, shape)

        grad = torch.ones_like(forward())

        def both() -> None:
            torch.autograd.grad(path.run(inputs, shape), list(inputs.values()), grad, allow_unused=True)

        return forward, both

    prepared(shape._replace(length=min(64, shape.length)))[1]()  # what torch loads once is not charged to the path
    forward, both = prepared(shape)
    found = time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": median_seconds(forward, arguments.repeat, device)}


def measure_apart(what: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Run :func:`measure` in a fresh process."""
    from fairseq_mega.cli.measure import run_apart

    if arguments.in_process and what != "bandwidth":
        return measure(what, arguments)
    return run_apart(what, arguments, what)


def obstacle(row: Row, arguments: argparse.Namespace, limit: float, rows: List[Row]) -> str:
    """Why a measurement is left out, or nothing."""
    import torch

    from fairseq_mega.cli.kernel_cases import OPS, missing

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


def sweep(rows: List[Row], arguments: argparse.Namespace, limit: float, number: int) -> None:
    """Measure every row once more and keep the faster result; leave out what does not fit."""
    from fairseq_mega.cli.measure import keep_the_faster

    for index, row in enumerate(rows):
        if number == 0:
            row["skipped"] = obstacle(row, arguments, limit, rows[:index])
        if row["skipped"]:
            continue
        what = f"{row['op']}:{row['path']}:{','.join(map(str, row['shape']))}"
        print(f"sweep {number + 1} of {arguments.sweeps}: {what}", file=sys.stderr)
        found = measure_apart(what, arguments)
        row.update(keep_the_faster({key: row.get(key, value) for key, value in found.items()}, found))


def table(rows: List[Row], bandwidth: float) -> str:
    """The measurements as a Markdown table, with ratios to each operator's baseline."""
    from fairseq_mega.cli.kernel_cases import OPS

    lines = [
        "| operator | B, D, N, L | path | forward ms | of limit | forward + backward ms | of limit | speed | peak MiB "
        "| memory |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        op, shape = OPS[row["op"]], row["shape"]
        head = f"| {op.title} | {', '.join(map(str, shape))} | {row['path']} |"
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
        forward = 4 * op.forward(shape) / bandwidth
        both = forward + 4 * op.backward(shape) / bandwidth
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
    from fairseq_mega.cli.measure import write_measurements

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
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments)))
        return
    import torch

    from fairseq_mega.cli.kernel_cases import OPS
    from fairseq_mega.cli.measure import available_gib

    shapes, ops = shapes_and_ops(arguments)
    torch.set_num_threads(arguments.threads)
    check(ops, shapes, arguments)
    rows: List[Row] = [
        {"op": op, "path": path, "shape": shape, "title": OPS[op].title}
        for op in ops
        for shape in shapes
        for path in OPS[op].paths
    ]
    limit = arguments.memory_limit or 0.7 * available_gib(torch.device(arguments.device))
    bandwidth = 0.0
    for number in range(arguments.sweeps):
        bandwidth = max(bandwidth, measure_apart("bandwidth", arguments)["bandwidth"])
        sweep(rows, arguments, limit, number)
    if all(row["skipped"] for row in rows):
        sys.exit("nothing could be measured:\n  " + "\n  ".join(sorted({row["skipped"] for row in rows})))
    print(table(rows, bandwidth))
    speed = f"{bandwidth / 1e9:.1f} GB/s"
    print(f"\nfloat32, {arguments.threads} thread(s), {arguments.device}; a copy moves {speed} (read and written).")
    write_json(rows, bandwidth, arguments)
    if arguments.plot:
        from fairseq_mega.cli.benchmark_plot import plot_rows

        plot_rows([{**row, "shape": row["shape"]._asdict()} for row in rows], arguments.plot)


if __name__ == "__main__":
    main()
