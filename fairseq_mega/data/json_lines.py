"""Texts of files of JSON lines, read piece by piece; a bad line is an error that names it, or is left out."""

import json
from pathlib import Path
from typing import Iterator, List, NamedTuple, Optional, Union

BAD_LINES = ("error", "skip")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")  # endings of files that have to be unpacked first


class Source(NamedTuple):
    """Where texts come from.

    Attributes:
        path: a file with one JSON object in a line.
        field: of the object that holds the text.
        bad_lines: one of BAD_LINES: what becomes of a line that is no such object.
    """

    path: Path
    field: str = "text"
    bad_lines: str = "error"


def json_files(folder: Path, split: str) -> List[Path]:
    """``SPLIT.jsonl`` of a folder, or all ``*.jsonl`` below ``SPLIT/`` in the order of their names.

    Raises:
        FileNotFoundError: if there is neither; it names the packed files that were found instead.
        ValueError: if there are both.
    """
    single, below = folder / f"{split}.jsonl", folder / split
    several = sorted(below.rglob("*.jsonl")) if below.is_dir() else []
    if single.is_file() and several:
        raise ValueError(f"{single} and {below} hold both texts of {split!r}: leave one of them")
    if single.is_file():
        return [single]
    if single.is_dir():
        raise ValueError(f"{single} is a folder: files of several parts go into {below}")
    if not several:
        packed = sorted([*folder.glob(f"{split}.jsonl.*"), *below.rglob("*.jsonl.*")])
        hint = f"; unpack {packed[0]} and its like: only plain files can be read from any place" if packed else ""
        raise FileNotFoundError(
            f"Dataset not found: {split} ({single}, or *.jsonl in the folder {below}{hint}) does not exist: put the "
            f"texts there"
        )
    return several


def text_of(line: bytes, field: str) -> Union[str, ValueError]:
    """The text of a line, or what is wrong with the line."""
    try:
        found = json.loads(line)
        if not isinstance(found, dict):
            return ValueError("is no JSON object")
        if not isinstance(found.get(field), str):
            return ValueError(f"has no text in the field {field!r} (--text-field)")
        found[field].encode("utf-8")  # half of a surrogate pair is valid JSON, and no text
    except (ValueError, RecursionError) as error:
        return ValueError(f"is not JSON ({error})")
    return found[field]


def read_texts(source: Source, begin: int, end: int) -> Iterator[Optional[str]]:
    """Texts of the lines that begin at bytes ``begin`` <= i < ``end``; None for each that is left out.

    ``begin`` has to be where a line begins. Blank lines and empty texts are nothing at all.

    Raises:
        ValueError: for a bad line, with file, line and remedy, unless bad lines are to be skipped.
    """
    with source.path.open("rb") as file:
        file.seek(begin)
        place = begin
        while place < end:
            line = file.readline()
            if not line:
                raise ValueError(f"{source.path}: it ended at byte {place}, before {end}: it changed while it was read")
            found = text_of(line, source.field) if line.strip() else ""
            if isinstance(found, str):
                if found:
                    yield found
            elif source.bad_lines == "skip":
                yield None
            else:
                raise ValueError(
                    f"{source.path}, line {line_number(source.path, place)}: it {found}; a line has to be a JSON "
                    f'object such as {{"{source.field}": "..."}}: mend it, or give --bad-lines skip to leave such '
                    f"lines out"
                )
            place += len(line)


def line_number(path: Path, place: int) -> int:
    """Number, from 1, of the line that begins at a byte."""
    lines = 1
    with path.open("rb") as file:
        while place > 0:
            block = file.read(min(place, 1 << 20))
            lines += block.count(b"\n")
            place -= len(block)
    return lines
