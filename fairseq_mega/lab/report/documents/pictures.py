"""Pictures that are kept beside the results they are drawn from, under the same name: ``kernels_cpu.json``, ``.png``.

Each contains a digest of its results, since its bytes depend on the version of matplotlib.
"""

from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from fairseq_mega.lab.benchmarks.kernels_report import plot_rows
from fairseq_mega.lab.runs.fingerprints import digest
from fairseq_mega.lab.runs.results import read_result

BENCHMARK = "kernels"


def drawn(root: Path) -> Iterator[Tuple[Path, List[Dict[str, Any]], str]]:
    """Yield the pictures of a checkout, the rows of each, and their digest."""
    for picture in sorted(root.glob("examples/**/results/*.png")):
        results = picture.with_suffix(".json")
        result = read_result(results) if results.exists() else {}
        if result.get("benchmark") == BENCHMARK:
            yield picture, result["rows"], digest(result["rows"])


def is_of(picture: Path, source: str) -> bool:
    """Return whether a picture was drawn from these results."""
    return f"source\0{source}".encode() in picture.read_bytes()


def outdated(root: Path) -> List[str]:
    """A line for every picture that was drawn from other results."""
    return [
        f"{picture.relative_to(root)}: was drawn from other results than {picture.stem}.json"
        for picture, _, source in drawn(root)
        if not is_of(picture, source)
    ]


def draw_outdated(root: Path) -> List[Path]:
    """Draw the outdated pictures again, and return them."""
    changed = []
    for picture, rows, source in drawn(root):
        if not is_of(picture, source):
            plot_rows(rows, picture, source)
            changed.append(picture)
    return changed
