"""Tables of ``python -m fairseq_mega.lab.benchmarks kernels``, and of the defects planted in the kernels."""

import json
from pathlib import Path
from typing import Any, Dict, Optional, Sequence, Tuple

from fairseq_mega.lab.benchmarks.kernels_report import BASELINES, COMPILED, by_kind
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.text_tables import Table, table_of

from .numbers import mebibytes, milliseconds, ratio

TITLES = {
    "fft": "torch FFT",
    "torch_fft": "torch FFT",
    "fft_kernel": "our FFT",
    "DxNxL": "D x N x L, as published",
}
Measured = Dict[Tuple[Any, ...], Dict[str, Dict[str, Any]]]


def measured(folder: Path, words: Sequence[str], *keys: str) -> Measured:
    """Return the measurements of a result file by entries of a row or of its shape, then by path."""
    (name,) = words
    found: Measured = {}
    for row in read_result(folder / name)["rows"]:
        if "seconds" in row:
            key = tuple(row[key] if key in row else row["shape"][key] for key in keys)
            found.setdefault(key, {})[row["path"]] = row
    return found


def first(paths: Dict[str, Dict[str, Any]], names: Sequence[str]) -> Any:
    """Return the measurement of the first name that has one, or nothing."""
    return next((paths[name] for name in names if name in paths), None)


def by_length(folder: Path, words: Sequence[str]) -> Table:
    """Return a table of each compiled operator's speed by length, and of its memory, relative to its baseline."""
    found = measured(folder, words, "title", "length")
    titles = {f"L = {length:,}": length for length in sorted({length for _, length in found})}
    rows = []
    for title in dict.fromkeys(title for title, _ in found):
        cells, shares, names = dict.fromkeys(titles, ""), [], ("", "")
        for column, length in titles.items():
            paths = found.get((title, length), {})
            fast, base = first(paths, COMPILED), first(paths, BASELINES)
            if fast is None or base is None:
                continue
            names = (fast["path"], base["path"])
            cells[column] = ratio(base["seconds"] / fast["seconds"])
            shares.append(fast["memory_mib"] / max(base["memory_mib"], 1e-9))
        if shares:
            memory = f"{min(shares):.2f} to {max(shares):.2f}"
            rows.append({"forward and backward": f"{title}: {names[0]} against {names[1]}", **cells, "memory": memory})
    return table_of(rows)


def by_shape(folder: Path, words: Sequence[str]) -> Table:
    """Table of time, speed relative to the baseline, and memory of each path, with a row for each shape."""
    found = measured(folder, words, "title", "batch", "width", "n", "length")
    names = list(dict.fromkeys(name for paths in found.values() for name in paths))
    names.sort(key=by_kind)
    several = len({title for title, *_ in found}) > 1
    rows = []
    for (title, *shape), paths in found.items():
        base = first(paths, BASELINES)
        cells = {TITLES.get(name, name): cost(paths[name], base) if name in paths else "" for name in names}
        sizes = ", ".join(f"{size:,}" for size in shape)
        rows.append({"B, D, N, L": f"{title}: {sizes}" if several else sizes, **cells})
    return table_of(rows)


def cost(row: Dict[str, Any], base: Optional[Dict[str, Any]]) -> str:
    """Return time and memory of a path, with its speed relative to the baseline."""
    speed = "" if base is None or row is base else f" ({ratio(base['seconds'] / row['seconds'])})"
    return f"{milliseconds(row['seconds'])}{speed}, {mebibytes(row['memory_mib'])}"


PLANTED = {"ema": "EMA scan", "fft_conv": "FFT convolution", "gate": "update gate", "timestep_norm": "timestep norm"}


def planted_defects(folder: Path, words: Sequence[str]) -> Table:
    """Return a table of the planted defects that the tests noticed, a row for each operator."""
    (name,) = words
    found: Dict[str, Dict[str, Any]] = json.loads((folder / name).read_text(encoding="utf-8"))
    return table_of(
        [
            {
                "operator": PLANTED.get(operator, operator),
                "noticed of those tried": f"{count['noticed']} of {count['tried']}",
                "of all": str(count["planted"]),
            }
            for operator, count in found.items()
        ]
    )
