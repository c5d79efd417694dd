"""Measured numbers within the sentences of a Markdown file, each behind a mark that names its source.

``It takes <!-- n: results/layer.json mega L=4096 seconds in ms -->89 ms`` is filled from the file, relative to the
document; the number keeps its decimals. A key is a name among the scores, or a path of names from the top of the file
(``settings.updates``); ``A / B`` is a ratio, ``min GLOB`` and ``max GLOB`` are taken over the scores that match.
``in ms`` and ``in MiB`` convert seconds and bytes.
"""

import fnmatch
import re
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Tuple

from fairseq_mega.lab.runs.results import read_result

from .numbers import MIB

BEGIN = "<!-- n: "
BEGUN = re.compile(f"(?<!`){BEGIN}")  # and not quoted as code
MARK = re.compile(
    rf"(?P<before>(?<!`){BEGIN}(?P<file>\S+) (?P<key>[^\n]+?) -->[\[*]*)(?P<number>-?\d+(?:,\d{{3}})*(?:\.\d+)?)"
)
PICKS: Dict[str, Callable[..., float]] = {"min ": min, "max ": max}
UNITS = {" in ms": 1e3, " in MiB": 1 / MIB}


class Number(NamedTuple):
    """A marked number: its source, what stands in the document, and what should."""

    file: str
    key: str
    stands: str
    should: str


def fill(document: Path, text: str) -> "Tuple[str, List[Number]]":
    """Return the text of a document with every marked number replaced, and these numbers.

    Raises:
        ValueError: naming document and mark, if a mark is incomplete, or its file or key is missing.
    """
    found: List[Number] = []
    read = lru_cache(maxsize=None)(read_result)

    def filled(match: "re.Match[str]") -> str:
        try:
            value = _value(read(document.parent / match["file"]), match["key"])
        except (OSError, ValueError) as error:
            raise ValueError(f"{document}: number of {match['file']} {match['key']}: {error}") from error
        decimals = len(match["number"].partition(".")[2])
        found.append(Number(match["file"], match["key"], match["number"], f"{value:,.{decimals}f}"))
        return f"{match['before']}{found[-1].should}"

    _check(document, text)
    return MARK.sub(filled, text), found


def _check(document: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(BEGIN):
            raise ValueError(f"{document}, line {number}: begin the line with a word, or the mark ends the paragraph")
        if len(BEGUN.findall(line)) != len(MARK.findall(line)):
            raise ValueError(f"{document}, line {number}: write a mark as '{BEGIN}FILE KEY -->NUMBER' in one line")


def _value(result: Dict[str, Any], key: str) -> float:
    for unit, factor in UNITS.items():
        if key.endswith(unit):
            return factor * _value(result, key[: -len(unit)])
    scores = result["scores"]
    for word, pick in PICKS.items():
        if key.startswith(word):
            names = fnmatch.filter(scores, key[len(word) :])
            if not names:
                raise ValueError("no score matches")
            return pick(scores[name] for name in names)
    over, slash, under = key.partition(" / ")
    if slash:
        return _value(result, over) / _value(result, under)
    if key in scores:
        return float(scores[key])
    found: Any = result
    for name in key.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError("the file has no such number")
    return float(found)
