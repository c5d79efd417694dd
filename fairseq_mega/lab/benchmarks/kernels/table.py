"""The measurements of the operators as a table and as a result file."""

import argparse
from typing import List

from fairseq_mega.lab.benchmarks.kernels.cases import OPS
from fairseq_mega.lab.benchmarks.kernels.measurements import Row
from fairseq_mega.lab.benchmarks.measuring import write_measurements


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
        wanted = (row["op"], shape, op.baseline)
        base: Row = next((other for other in rows if (other["op"], other["shape"], other["path"]) == wanted), {})
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


def write_json(rows: List[Row], bandwidth: float, arguments: argparse.Namespace) -> None:
    """Write the result file, with the reason of each skipped row."""
    scores = {"bandwidth": bandwidth}
    for row in rows:
        for name in ("seconds", "forward_seconds", "memory_mib"):
            if name in row:
                scores[f"{row['op']} {','.join(map(str, row['shape']))} {row['path']} {name}"] = row[name]
    measured = sum(1 for row in rows if not row["skipped"])
    records = [{**row, "shape": row["shape"]._asdict()} for row in rows]
    write_measurements(arguments, scores, examples=measured, rows=records)
