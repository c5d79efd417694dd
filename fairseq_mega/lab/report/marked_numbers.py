"""Measured numbers within the sentences of a Markdown file, each after a mark that names its source.

``It takes <!-- n: results/layer.json mega L=4096 seconds in ms -->89 ms`` is filled from the file, relative to the
document; the number keeps its decimals. A key is a name among the scores, or a path of names and places from the top of
the file (``settings.updates``, ``curve.0.accuracy``); ``A / B`` is a ratio and ``A - B`` a difference; ``min GLOB`` and
``max GLOB`` are computed over the scores that match. ``in ms`` and ``in MiB`` convert seconds and bytes. ``B`` may
begin with another file: ``A / other.json B``. A name with ``*`` matches several files, whose values are averaged.

``<!-- n: parameters mega_lm_enwik8_base -->39,137,792`` is filled from the architecture, which is built on paper.
``parameters mega_wmt_en_de symbols=33000 share_all_embeddings=True`` names the size of the dictionary, too, and another
option.
"""

import fnmatch
import operator
import re
import statistics
from functools import lru_cache
from pathlib import Path
from typing import Any, Callable, Dict, List

from fairseq_mega.lab.report.benchmark_tables import count_parameters
from fairseq_mega.lab.report.numbers import MIB
from fairseq_mega.lab.runs.results import read_result

BEGIN = "<!-- n: "
BEGUN = re.compile(f"(?<!`){BEGIN}")  # and not quoted as code
MARK = re.compile(
    rf"(?P<before>(?<!`){BEGIN}(?P<file>\S+) (?P<key>[^\n]+?) -->[\[*]*)(?P<number>-?\d+(?:,\d{{3}})*(?:\.\d+)?)"
)
OTHER = re.compile(r"(?P<file>\S+\.json) (?P<key>.+)")  # a part of a key with another file
PICKS: Dict[str, Callable[..., float]] = {"min ": min, "max ": max}
OPERATIONS: Dict[str, Callable[[float, float], float]] = {" / ": operator.truediv, " - ": operator.sub}
UNITS = {" in ms": 1e3, " in MiB": 1 / MIB}
Read = Callable[[str], List[Dict[str, Any]]]  # of the results of a file's name


def fill_numbers(folder: Path, text: str) -> str:
    """Return the text of a document in a folder with every marked number replaced.

    Raises:
        ValueError: naming the mark, if it is incomplete, or its file or key is missing.
    """
    cached = lru_cache(maxsize=None)(read_result)

    def read(name: str) -> List[Dict[str, Any]]:
        paths = sorted(folder.glob(name)) if "*" in name else [folder / name]
        if not paths:
            raise ValueError("no file matches")
        return list(map(cached, paths))

    def filled(match: "re.Match[str]") -> str:
        try:
            value = _value(read, match["file"], match["key"])
        except (OSError, ValueError) as error:
            raise ValueError(f"number of {match['file']} {match['key']}: {error}") from error
        return f"{match['before']}{value:,.{len(match['number'].partition('.')[2])}f}"

    for number, line in enumerate(text.splitlines(), 1):
        if len(BEGUN.findall(line)) != len(MARK.findall(line)):
            raise ValueError(f"line {number}: write a mark as '{BEGIN}FILE KEY -->NUMBER' in one line")
    return MARK.sub(filled, text)


def _value(read: Read, file: str, key: str) -> float:
    if file == "parameters":
        return count_parameters(key)
    for unit, factor in UNITS.items():
        if key.endswith(unit):
            return factor * _value(read, file, key[: -len(unit)])
    for sign, operation in OPERATIONS.items():
        left, found, right = key.partition(sign)
        if found:
            other = OTHER.fullmatch(right)
            return operation(_value(read, file, left), _value(read, *(other.groups() if other else (file, right))))
    return statistics.fmean(_number(result, key) for result in read(file))


def _number(result: Dict[str, Any], key: str) -> float:
    scores = result["scores"]
    for word, pick in PICKS.items():
        names = fnmatch.filter(scores, key[len(word) :]) if key.startswith(word) else []
        if names:
            return pick(scores[name] for name in names)
    if key in scores:
        return float(scores[key])
    found: Any = result
    try:
        for name in key.split("."):
            found = found[int(name) if isinstance(found, list) else name]
    except (LookupError, TypeError, ValueError):
        found = None
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        raise ValueError("the file has no such number")
    return float(found)
