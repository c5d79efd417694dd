"""Tables of ``python -m fairseq_mega.lab.benchmarks layer``: time and memory of layers."""

from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import by_subject, mebibytes, milliseconds, points_of, ratio

TITLES = {
    "transformer": "Transformer",
    "explicit-transformer": "Transformer, attention written out",
    "mega": "MEGA, full attention",
    "mega-chunk": "MEGA, chunks of {chunk}",
    "published-chunk": "MEGA, chunks of {chunk}, as published",
    "megalodon-chunk": "MEGALODON, chunks of {chunk}",
    "megalodon-published": "MEGALODON, chunks of {chunk}, as published",
}
PRECISIONS = {
    "float32": "float32",
    "autocast": "bfloat16 under autocast",
    "bfloat16": "bfloat16 throughout",
    "float16": "float16 throughout",
}


def title(model: str, chunk: Any) -> str:
    """Return a model in words; an unknown model keeps its name."""
    return TITLES.get(model, model).format(chunk=chunk)


def by_length(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each length of one result file, with the speed relative to the first model."""
    (name,) = words
    result = read_result(folder / name)
    found = by_subject(result["scores"], "L")
    chunk = result["settings"]["chunk_size"]
    rows = []
    for length in points_of(found):
        base = next(iter(found.values())).get(length)
        cells, memory = {}, []
        for number, (model, points) in enumerate(found.items()):
            point = points.get(length)
            memory.append("-" if point is None else f"{point['memory_mib']:.0f}")
            speed = f" ({ratio(base['seconds'] / point['seconds'])})" if base and point and number else ""
            cells[title(model, chunk)] = "-" if point is None else milliseconds(point["seconds"]) + speed
        rows.append({"L": f"{length:,}", **cells, "peak memory, MiB, in this order": " / ".join(memory)})
    return table_of(rows)


def by_precision(folder: Path, words: Sequence[str]) -> Table:
    """Table with a row for each model, and a column for each length of several result files, whose precisions and
    shapes differ.
    """
    columns = []
    cells: Dict[str, Dict[str, str]] = {}
    chunks: Dict[str, List[int]] = {}
    for name in words:
        result = read_result(folder / name)
        settings, found = result["settings"], by_subject(result["scores"], "L")
        precision = PRECISIONS.get(settings.get("dtype", "float32"), settings.get("dtype", ""))
        for length in points_of(found):
            columns.append(f"[L = {length:,}, d = {settings['embed_dim']}, {precision}]({name})")
            for model, points in found.items():
                chunks.setdefault(model, []).append(settings["chunk_size"])
                if length in points:
                    time, memory = milliseconds(points[length]["seconds"]), mebibytes(points[length]["memory_mib"])
                    cells.setdefault(model, {})[columns[-1]] = f"{time}, {memory}"
    rows = []
    for model, found_cells in cells.items():
        chunk = " or ".join(f"{size:,}" for size in sorted(set(chunks[model])))
        rows.append({"": title(model, chunk), **{column: found_cells.get(column, "") for column in columns}})
    return table_of(rows)
