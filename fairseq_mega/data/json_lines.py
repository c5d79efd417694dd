"""Read texts from files of JSON lines piece by piece; a bad line is an error or is skipped."""

import json
import logging
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Union

from .class_folders import listing

logger = logging.getLogger(__name__)

BAD_LINES = ("error", "skip")
ENDINGS = (".jsonl", ".ndjson", ".jsonlines", ".jl", ".json")


class Source(NamedTuple):
    """File of texts.

    Attributes:
        path: file with one JSON object per line.
        field: field of the object that holds the text.
        bad_lines: treatment of other lines, one of BAD_LINES.
    """

    path: Path
    field: str = "text"
    bad_lines: str = "error"


def json_files(folder: Path, split: str) -> List[Path]:
    """Return ``SPLIT.jsonl`` of a folder, or all files of JSON lines below ``SPLIT/`` in the order of their names.

    The ending may be any of ENDINGS, in lower or upper case. The log counts ignored files.

    Raises:
        FileNotFoundError: if neither exists.
        ValueError: if both exist.
    """
    below = folder / split
    beside = [path for path in folder.glob(f"{split}.*") if path.stem == split and path.suffix.lower() in ENDINGS]
    inside: List[Path] = []
    if below.is_dir():
        found = listing(below, ENDINGS)
        inside = [below / name for name in found.files]
        if found.omitted:
            logger.warning(f"{below}: {len(inside):,} files of JSON lines; ignored: {found.described()}")
    if len(beside) + bool(inside) > 1:
        raise ValueError(f"{folder} has several texts of {split!r}: keep one")
    if not beside and not inside:
        raise FileNotFoundError(f"Dataset not found: {split} ({below}.jsonl, or *.jsonl in {below})")
    return beside or inside


def text_of(line: bytes, field: str) -> Union[str, ValueError]:
    """Return the text of a line, or the fault of the line."""
    try:
        found = json.loads(line.decode("utf-8-sig"))
        text = found.get(field) if isinstance(found, dict) else None
        if not isinstance(text, str):
            return ValueError(f"is not a JSON object with a text in the field {field!r} (--text-field)")
        text.encode()  # half of a surrogate pair is valid JSON, but not a text
    except (ValueError, RecursionError) as error:
        return ValueError(f"is not JSON in UTF-8 ({error})")
    return text


def read_texts(source: Source, begin: int, end: int) -> Iterator[Optional[str]]:
    """Yield the texts of the lines that begin at bytes ``begin`` <= i < ``end``; None for each skipped line.

    ``begin`` must be the beginning of a line. Blank lines and empty texts yield nothing.

    Raises:
        ValueError: for a bad line, unless bad lines are skipped.
    """
    with source.path.open("rb") as file:
        file.seek(begin)
        place = begin
        while place < end:
            line = file.readline()
            if not line:  # the file became shorter
                break
            found = text_of(line, source.field) if line.strip() else ""
            if isinstance(found, str):
                if found:
                    yield found
            elif source.bad_lines == "skip":
                yield None
            else:
                raise ValueError(bad_line(source, line_number(source.path, place), found))
            place += len(line)


def bad_line(source: Source, number: int, fault: ValueError) -> str:
    """Return the error message for a bad line."""
    return (
        f"{source.path}, line {number}: it {fault}; every line must be a JSON object such as "
        f'{{"{source.field}": "..."}}: correct the line, or give --bad-lines skip to skip bad lines'
    )


def line_number(path: Path, place: int) -> int:
    """Return the number, counted from 1, of the line that begins at a byte."""
    lines = 1
    with path.open("rb") as file:
        while place > 0:
            block = file.read(min(place, 1 << 20))
            lines += block.count(b"\n")
            place -= len(block)
    return lines
