"""Tables of the benchmarks ``decoding`` and ``lm-length``: language models over their lengths."""

from pathlib import Path
from typing import Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import MIB, amount, by_subject, mebibytes, milliseconds, points_of, ratio

TITLES = {
    "mega": "MEGA",
    "mega-full": "MEGA, full attention",
    "mega-bf16": "MEGA, matrices in bfloat16",
    "mega-int8": "MEGA, matrices in int8",
    "transformer": "Transformer",
    "llama": "Llama-style Transformer",
    "megalodon": "MEGALODON",
    "megalodon-bf16": "MEGALODON, matrices in bfloat16",
    "megalodon-int8": "MEGALODON, matrices in int8",
}
BASE = "transformer"


def title(model: str) -> str:
    """Return a model in words; an unknown model keeps its name, for instance "mega, chunk 64"."""
    name, comma, rest = model.partition(", ")
    return TITLES.get(name, name) + comma + rest


def decoding(folder: Path, words: Sequence[str]) -> Table:
    """Table of the time of a step: a row for each model of several files, with the speed relative to the file's
    Transformer.
    """
    files = [(name, read_result(folder / name)) for name in words]
    every = sorted({point for _, result in files for point in points_of(by_subject(result["scores"], "position"))})
    rows = []
    for _, result in files:
        found, texts = by_subject(result["scores"], "position"), result["settings"].get("batch", 1)
        beside = f"{texts} texts: " if texts > 1 else ""
        for model, points in found.items():
            cells = {}
            for position in every:
                point, base = points.get(position), found.get(BASE, {}).get(position)
                speed = f" ({ratio(base['seconds'] / point['seconds'])})" if base and point and model != BASE else ""
                cells[f"at {position:,}"] = "" if point is None else milliseconds(point["seconds"]) + speed
            last = points[max(points)]
            rows.append(
                {
                    "a step of": beside + title(model),
                    "parameters of the layers": f"{last['parameters']:,.0f}",
                    **cells,
                    "memory of the past": mebibytes(last["bytes"] / MIB),
                }
            )
    return table_of(rows)


def training_lengths(folder: Path, words: Sequence[str]) -> Table:
    """Table of training speed and memory of each model, with a row for each length."""
    (name,) = words
    result = read_result(folder / name)
    found = by_subject(result["scores"], "L")
    columns = ["L"]
    for model in found:
        columns += [f"{title(model)}, tokens/s", "microseconds per token", "peak MiB"]
    models = list(found.values())
    rows = []
    for length in points_of(found):
        row = [f"{length:,}"]
        for points in models:
            point = points.get(length)
            row += (
                ["left out", "", ""]
                if point is None
                else [
                    f"{length / point['seconds']:,.0f}",
                    amount(1e6 * point["seconds"] / length),
                    f"{point['memory_mib']:,.0f}",
                ]
            )
        both = all(length in points for points in models[:2]) and len(models) > 1
        rows.append([*row, ratio(models[1][length]["seconds"] / models[0][length]["seconds"]) if both else ""])
    return Table([*columns, "ratio"], rows)
