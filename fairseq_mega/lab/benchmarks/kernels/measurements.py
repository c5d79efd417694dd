"""Measure the paths of the operators, one by one."""

import argparse
import sys
from typing import Any, Dict, List, Tuple

import torch

from fairseq_mega.lab.benchmarks import apart, measuring
from fairseq_mega.lab.benchmarks.kernels.cases import OPS, missing
from fairseq_mega.lab.benchmarks.kernels.operators import leaves
from fairseq_mega.lab.benchmarks.kernels.shapes import Shape
from fairseq_mega.lab.benchmarks.rows import Rows

Row = Dict[str, Any]


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure the seconds of a forward pass and of both passes, and the peak extra memory in MiB of both passes."""
    device = torch.device(arguments.device)
    torch.set_num_threads(arguments.threads)
    if part == "bandwidth":
        return {"bandwidth": measuring.bandwidth(device, arguments.bandwidth_mib, max(arguments.repeat, 3))}
    op_name, path_name, size = part.split(":")
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

    prepared(shape._replace(length=min(64, shape.length), chunk=0))[1]()  # excludes one-time work
    forward, both = prepared(shape)
    found = measuring.time_and_memory(both, arguments.repeat, device)
    return {**found, "forward_seconds": measuring.median_seconds(forward, arguments.repeat, device)}


def measure_apart(part: str, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Run :func:`measure` in a fresh process; on a GPU and with --in-process in this one."""
    if arguments.device == "cpu" and (not arguments.in_process or part == "bandwidth"):
        return apart.run_apart(part, arguments, part)
    try:
        return measure(part, arguments)
    except torch.cuda.OutOfMemoryError:
        return {"skipped": "the GPU's memory does not suffice"}
    finally:
        if arguments.device == "cuda":
            torch.cuda.empty_cache()  # memory that one path keeps must be free for the next


def obstacle(row: Row, arguments: argparse.Namespace, limit: float, rows: List[Row]) -> str:
    """Return the reason to leave a measurement out, or nothing."""
    op, shape = OPS[row["op"]], row["shape"]
    path = op.paths[row["path"]]
    problem = missing(path, torch.device(arguments.device))
    if problem:
        return problem
    if path.longest is not None and shape.length > path.longest:
        return f"accepts up to {path.longest} steps"
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


def sweep(rows: List[Row], arguments: argparse.Namespace, limit: float, number: int, kept: Rows) -> None:
    """Measure every row once more and keep the faster result; leave out rows that do not fit."""
    for index, row in enumerate(rows):
        if number == 0:
            row["skipped"] = obstacle(row, arguments, limit, rows[:index])
        if row["skipped"]:
            continue
        subject = {"op": row["op"], "path": row["path"], "shape": row["shape"]._asdict(), "sweep": number + 1}
        found = kept.find(**subject)
        if found is None:
            name = f"{row['op']}:{row['path']}:{','.join(map(str, row['shape']))}"
            print(f"sweep {number + 1} of {arguments.sweeps}: {name}", file=sys.stderr)
            found = kept.add(measure_apart(name, arguments), **subject)
        if "skipped" in found:
            row["skipped"] = found["skipped"]
            continue
        row.update(measuring.keep_the_faster({key: row.get(key, value) for key, value in found.items()}, found))
