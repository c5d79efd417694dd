"""Measured numbers within the sentences of a Markdown file, each behind a mark that names its source.

``It takes <!-- n: results/layer.json mega L=4096 seconds in ms -->89 ms`` is filled from the file, relative to the
document; the number keeps its decimals. A key is a name among the scores, or a path of names from the top of the file
(``settings.updates``); ``A / B`` is a ratio, ``min GLOB`` and ``max GLOB`` are taken over the scores that match.
``in ms`` and ``in MiB`` convert seconds and bytes.
"""

import fnmatch
import re
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

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


def numbers_of(document: Path) -> List[Number]:
    """Return the marked numbers of a document.

    Raises:
        ValueError: naming document and mark, if a mark is incomplete, or its file or key is missing.
    """
    text, found = document.read_text(encoding="utf-8"), []
    _check(document, text)
    for match in MARK.finditer(text):
        found.append(Number(match["file"], match["key"], match["number"], _wanted(document, match)))
    return found


def fill(document: Path, text: str) -> str:
    """Return the text of a document with every marked number replaced; raises as :func:`numbers_of`."""
    _check(document, text)
    return MARK.sub(lambda match: f"{match['before']}{_wanted(document, match)}", text)


def _check(document: Path, text: str) -> None:
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(BEGIN):
            raise ValueError(f"{document}, line {number}: begin the line with a word, or the mark ends the paragraph")
        if len(BEGUN.findall(line)) != len(MARK.findall(line)):
            raise ValueError(f"{document}, line {number}: write a mark as '{BEGIN}FILE KEY -->NUMBER' in one line")


def _wanted(document: Path, match: "re.Match[str]") -> str:
    try:
        value = _value(read_result(document.parent / match["file"]), match["key"])
    except (OSError, ValueError) as error:
        raise ValueError(f"{document}: number of {match['file']} {match['key']}: {error}") from error
    decimals = len(match["number"].partition(".")[2])
    return f"{value:,.{decimals}f}"


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
