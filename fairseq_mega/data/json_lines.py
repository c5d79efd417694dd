"""Texts of files of JSON lines, read piece by piece; a bad line is an error that names it, or is left out."""

import json
import logging
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Union

from fairseq_mega.compat.patches.interactive import TO_LINE_FEEDS

from .class_folders import ending_of, listed
from .file_kinds import HEAD, SOURCE, kind_of, kind_of_file

logger = logging.getLogger(__name__)

BAD_LINES = ("error", "skip")
SPLITS = ("train", "valid", "test")
ENDINGS = (".jsonl", ".ndjson", ".jsonlines", ".jl", ".json")
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_OBJECT = re.compile(rb'\s*\{[ \t]*"(?:[^"\\\n]|\\.)*"[ \t]*:')  # the beginning of one, on a line
_SPREAD = re.compile(rb'\s*\{\s*"(?:[^"\\\n]|\\.)*"\s*:')
_ARRAY = re.compile(  # of objects, arrays, texts, or nothing; a text may be cut where the beginning of a file ends
    rb'\s*\[\s*(\{\s*["}]|\[\s*["\[{]|\]\s*\Z|"(?:[^"\\]|\\.)*(\\?\Z|"\s*(,|\Z|\]\s*\Z)))', re.DOTALL
)


class Repeated(ValueError):
    """A field stands in an object twice; the message begins after "it"."""


class Source(NamedTuple):
    """Origin of texts.

    Attributes:
        path: a file with one JSON object in a line.
        field: of the object that holds the text.
        bad_lines: one of BAD_LINES, the treatment of a line that is no such object.
    """

    path: Path
    field: str = "text"
    bad_lines: str = "error"


def begins_object(head: bytes) -> bool:
    """Return whether a text begins as JSON lines do: with an object and the name of a field."""
    return _OBJECT.match(head) is not None


def begins_array(head: bytes) -> bool:
    """Return whether a text begins as a JSON array of objects, texts or arrays."""
    return _ARRAY.match(head) is not None


def begins_json(head: bytes) -> bool:
    """Return whether a text begins as an array, or as an object that is spread over lines."""
    return begins_array(head) or _SPREAD.match(head) is not None


def looks_like_json(path: Path) -> bool:
    """Return whether a file begins as JSON lines or other JSON does."""
    head = _head(path)
    return begins_object(head) or begins_json(head)


def json_files(folder: Path, split: str) -> List[Path]:
    """``SPLIT.jsonl`` of a folder, or all such files below ``SPLIT/`` in the order of their names.

    The ending may be any of ENDINGS, in capitals as well; a file of another name is taken where it begins as JSON lines
    do. The log counts what is left out.

    Raises:
        FileNotFoundError: if there is neither; it names the packed files that were found instead.
        ValueError: if there are both, or a file is of another kind.
    """
    below = folder / split
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    singles = [path for path in there if path.stem == split and path.suffix.lower() in ENDINGS]
    for path in singles:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: files of several parts go into {below}")
    several = _files_below(below)
    texts = [path for path in there if path.suffix.lower() in ENDINGS and path.is_file() and path.name != SOURCE]
    like = [path for path in texts if path.stem not in SPLITS]
    if len(singles) + bool(several) > 1:
        places = " and ".join(str(path) for path in [*singles, *([below] if several else [])])
        raise ValueError(f"{places} hold both texts of {split!r}: leave one of them")
    if not singles and not several:
        packed = sorted(path for path in [*folder.glob(f"{split}.*"), *_walk(below)] if _is_packed(path))
        hint = f"; unpack {packed[0]} and its like: only plain files can be read from any place" if packed else ""
        hint += (
            f"; {listed([path.name for path in like])} in {folder} belong to no split by their names" if like else ""
        )
        raise FileNotFoundError(
            f"Dataset not found: {split} ({folder / split}.jsonl, or *.jsonl in the folder {below}{hint}) does not "
            f"exist: put the texts there"
        )
    if like:
        logger.warning(f"{folder}: left out, as of no split by their names: {listed([path.name for path in like])}")
    for path in singles or several:
        check_json_lines(path)
    return singles or several


def _files_below(folder: Path) -> List[Path]:
    """Files of JSON lines below a folder; the log counts the others."""
    taken, others = [], Counter[str]()
    for path in _walk(folder):
        if any(part.startswith(".") for part in path.relative_to(folder).parts):
            continue  # our own files, beside the texts, are hidden
        if path.suffix.lower() in ENDINGS or begins_object(_head(path)):
            taken.append(path)
        else:
            others[ending_of(path.name) + (" (packed: unpack them)" if _is_packed(path) else "")] += 1
    if others and taken:
        counted = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common())
        logger.warning(f"{folder}: {len(taken):,} files of JSON lines; left out: {counted}")
    return taken


def _walk(folder: Path) -> List[Path]:
    """Sorted files below a folder, those of linked folders too, each folder once."""
    found: List[Path] = []
    seen = set()
    for place, folders, names in os.walk(folder, followlinks=True):
        if os.path.realpath(place) in seen:
            folders.clear()
            continue
        seen.add(os.path.realpath(place))
        found += [Path(place, name) for name in names]
    return sorted(found)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _is_packed(path: Path) -> bool:
    if not path.is_file():
        return False
    kind = kind_of_file(path)
    return path.suffix.lower() in PACKED or (kind is not None and kind.group == "packed")


def check_json_lines(path: Path) -> None:
    """Raise ValueError that names a file, what it is and the remedy unless it may be JSON lines."""
    head = _head(path)
    kind = kind_of(head)
    if kind is not None:
        raise ValueError(kind.told(path))
    if begins_array(head):
        raise ValueError(
            f"{path}: it is a JSON array, and a file that is read from any place has an object in each line; convert "
            f"it: `jq -c '.[]' {path} >OUT.jsonl`"
        )


def check_not_all_bad(path: Path, texts: int, skipped: int) -> None:
    """Raise ValueError for a file of which each line was left out as bad."""
    if skipped and not texts:
        raise ValueError(f"{path}: each of its {skipped:,} lines is bad, nothing is left with --bad-lines skip")


def text_of(line: bytes, field: str) -> Union[str, ValueError]:
    """The text of a line, or what is wrong with the line."""
    try:
        repeats = line.count(b'"%s"' % field.encode()) > 1
        found = json.loads(line, object_pairs_hook=without_repeats if repeats else None)
        if not isinstance(found, dict):
            return ValueError("is not a JSON object")
        if not isinstance(found.get(field), str):
            return ValueError(f"has no text in the field {field!r} (--text-field)")
        found[field].encode("utf-8")  # half of a surrogate pair is valid JSON, and no text
    except Repeated as error:
        return error
    except UnicodeDecodeError as error:
        return ValueError(f"is not UTF-8 ({error.reason}, byte 0x{line[error.start]:02x})")
    except (ValueError, RecursionError) as error:
        if line.count(b"\r") > 1:
            return ValueError(f"holds carriage returns, which end no line ({TO_LINE_FEEDS})")
        return ValueError(f"is not JSON ({error})")
    return found[field]


def without_repeats(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """An object of JSON; raises Repeated if it has a field twice, of which only the last would be read."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise Repeated(f"has the field {name!r} twice in one object")
    return found


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
                raise ValueError(bad_line(source, line_number(source.path, place), found))
            place += len(line)


def bad_line(source: Source, number: int, fault: ValueError) -> str:
    """The message about a bad line."""
    return (
        f"{source.path}, line {number}: it {fault}; a line has to be a JSON object such as "
        f'{{"{source.field}": "..."}}: correct it, or give --bad-lines skip to skip such lines'
    )


def line_number(path: Path, place: int) -> int:
    """Number, from 1, of the line that begins at a byte."""
    lines = 1
    with path.open("rb") as file:
        while place > 0:
            block = file.read(min(place, 1 << 20))
            lines += block.count(b"\n")
            place -= len(block)
    return lines
