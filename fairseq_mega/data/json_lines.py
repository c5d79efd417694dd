"""Read texts from files of JSON lines piece by piece; a bad line is an error or is skipped."""

import itertools
import json
import logging
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple, Union

from fairseq_mega.compat.patches.interactive import TO_LINE_FEEDS

from .class_folders import ending_of, files_below, listed
from .file_kinds import HEAD, SOURCE, kind_of, kind_of_file

logger = logging.getLogger(__name__)

BAD_LINES = ("error", "skip")
SPLITS = ("train", "valid", "test")
ENDINGS = (".jsonl", ".ndjson", ".jsonlines", ".jl", ".json")
FIRST_TEXTS = 100  # of a file, which show the form of all
PACKED = (".gz", ".bz2", ".xz", ".zst", ".zip")
_OBJECT = re.compile(rb'\s*\{[ \t]*"(?:[^"\\\n]|\\.)*"[ \t]*:')  # beginning of an object on one line
_DICTIONARY = re.compile(r"\{\s*'[^']*'\s*:").match
_LIST = re.compile(r"\[\s*'.*'\s*\],?").fullmatch
_BYTES = re.compile(r"""b(['"]).*\1,?""").fullmatch  # of Python
_SPREAD = re.compile(rb'\s*\{\s*"(?:[^"\\\n]|\\.)*"\s*:')
_ARRAY = re.compile(  # of objects, arrays, texts, or nothing; a text may be cut where the beginning of a file ends
    rb'\s*\[\s*(\{\s*["}]|\[\s*["\[{]|\]\s*\Z|"(?:[^"\\]|\\.)*(\\?\Z|"\s*(,|\Z|\]\s*\Z)))', re.DOTALL
)


class Repeated(ValueError):
    """Error for an object that has a field twice; the message is the continuation of "it"."""


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


def begins_object(head: bytes) -> bool:
    """Return whether a text begins like JSON lines, with an object and the name of a field."""
    return _OBJECT.match(head) is not None


def begins_array(head: bytes) -> bool:
    """Return whether a text begins as a JSON array of objects, texts or arrays."""
    return _ARRAY.match(head) is not None


def begins_json(head: bytes) -> bool:
    """Return whether a text begins with a JSON array, or with an object on several lines."""
    return begins_array(head) or _SPREAD.match(head) is not None


def form_of_records(head: str) -> str:
    """Return the name of the form if the lines of a text look plain but are data, else an empty name.

    Args:
        head: the beginning of the text; its last line may be incomplete.
    """
    whole = [line.strip() for line in head.splitlines(keepends=True) if line.strip() and line.endswith(("\r", "\n"))]
    behind = list(itertools.dropwhile(lambda line: line.startswith(("#", "//")), whole))
    if head.startswith("\x1e"):
        return "a sequence of JSON texts, each behind the byte 1E"
    if _most(_DICTIONARY, whole):
        return "dictionaries of Python"
    if _most(_LIST, whole):
        return "lists of Python"
    if len(whole) > 1 and _most(_BYTES, whole):
        return "bytes of Python, one a line"
    if _most(_is_object, whole):
        return "JSON lines behind a comment" if behind != whole else "objects of JSON"
    if _most(_is_array, whole):
        return "arrays of JSON, one a line"
    if len(whole) > 1 and _most(lambda line: line.startswith('"') and _parsed(line) is not None, whole):
        return "texts of JSON, one a line"
    return ""


def _most(has_form: Callable[[str], object], lines: Sequence[str]) -> bool:
    """Return whether most lines have a form: a heading, or a line that was cut off, makes no plain text of others."""
    return 2 * sum(bool(has_form(line)) for line in lines) > len(lines)


def _is_object(line: str) -> bool:
    return begins_object(line.encode())


def _parsed(line: str) -> Any:
    """Return the content of a line of JSON; None if it is not JSON."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None


def _is_array(line: str) -> bool:
    """Return whether a line is an array of JSON that contains a text or an object."""
    found = _parsed(line) if line.startswith("[") else None
    return isinstance(found, list) and any(isinstance(entry, (str, dict)) for entry in found)


def form_of_texts(texts: Iterable[str]) -> str:
    """Return the name of the form if texts are data, such as "objects of JSON", else an empty name."""
    lines = [" ".join(text.split()) for text in texts if text.strip()]
    return form_of_records("".join(f"{line}\n" for line in lines))


def told_form(path: object, texts: Iterable[str]) -> Iterator[str]:
    """Yield a note if texts to learn from are data."""
    form = form_of_texts(texts)
    if form:
        yield f"note: the texts of {path} are {form}, and the model learns their marks: write the texts alone"


def looks_like_json(path: Path) -> bool:
    """Return whether a file begins like JSON lines or other JSON."""
    head = _head(path)
    return begins_object(head) or begins_json(head)


def json_files(folder: Path, split: str) -> List[Path]:
    """Return ``SPLIT.jsonl`` of a folder, or all files of JSON lines below ``SPLIT/`` in the order of their names.

    The ending may be any of ENDINGS, in lower or upper case; below ``SPLIT/`` a file with another name is accepted if
    it begins like JSON lines. The log counts ignored files.

    Raises:
        FileNotFoundError: if neither exists; the message names packed files.
        ValueError: if both exist, or a file is of another kind.
    """
    below = folder / split
    there = sorted(folder.iterdir()) if folder.is_dir() else []
    singles = [path for path in there if path.stem == split and path.suffix.lower() in ENDINGS]
    for path in singles:
        if path.is_dir():
            raise ValueError(f"{path} is a folder: move the files of a split into {below}")
    several = _files_below(below)
    texts = [path for path in there if path.suffix.lower() in ENDINGS and path.is_file() and path.name != SOURCE]
    like = [path for path in texts if path.stem not in SPLITS]
    if len(singles) + bool(several) > 1:
        places = " and ".join(str(path) for path in [*singles, *([below] if several else [])])
        raise ValueError(f"{places} hold both texts of {split!r}: remove one of them")
    if not singles and not several:
        packed = sorted(path for path in [*folder.glob(f"{split}.*"), *_below(below)[0]] if _is_packed(path))
        hint = f"; unpack {packed[0]} and other packed files: only plain files can be read" if packed else ""
        hint += (
            f"; the names of {listed([path.name for path in like])} in {folder} are names of no split" if like else ""
        )
        raise FileNotFoundError(
            f"Dataset not found: {split} ({folder / split}.jsonl, or *.jsonl in the folder {below}{hint}) does not "
            f"exist: put the texts there"
        )
    if like:
        logger.warning(f"{folder}: ignored, as the names belong to no split: {listed([path.name for path in like])}")
    for path in singles or several:
        check_json_lines(path)
    return singles or several


def _files_below(folder: Path) -> List[Path]:
    """Return the files of JSON lines below a folder; the log counts other files."""
    taken, others = [], Counter[str]()
    there, hidden = _below(folder)
    for path in there:
        if path.suffix.lower() in ENDINGS or begins_object(_head(path)):
            taken.append(path)
        else:
            others[ending_of(path.name) + (" (packed: unpack them)" if _is_packed(path) else "")] += 1
    others.update(f"hidden {ending_of(path.name)}" for path in hidden if path.suffix.lower() in ENDINGS)
    if others and taken:
        counted = ", ".join(f"{count:,} {ending}" for ending, count in others.most_common())
        logger.warning(f"{folder}: {len(taken):,} files of JSON lines; ignored: {counted}")
    return taken


def _below(folder: Path) -> Tuple[List[Path], List[Path]]:
    return files_below(folder) if folder.is_dir() else ([], [])


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD)


def _is_packed(path: Path) -> bool:
    if not path.is_file():
        return False
    kind = kind_of_file(path)
    return path.suffix.lower() in PACKED or (kind is not None and kind.group == "packed")


def check_json_lines(path: Path) -> None:
    """Raise a ValueError with kind and remedy unless a file may be JSON lines."""
    head = _head(path)
    kind = kind_of(head)
    if kind is not None:
        raise ValueError(kind.told(path))
    if begins_array(head):
        raise ValueError(
            f"{path} is a JSON array, and JSON lines with one object per line are required; convert it: "
            f"`jq -c '.[]' {path} >OUT.jsonl`"
        )


def check_not_all_bad(path: Path, texts: int, skipped: int) -> None:
    """Raise a ValueError for a file whose lines were all skipped as bad lines."""
    if skipped and not texts:
        raise ValueError(f"{path}: all of its {skipped:,} lines are bad, so --bad-lines skip leaves no text")


def text_of(line: bytes, field: str) -> Union[str, ValueError]:
    """Return the text of a line, or the fault of the line."""
    try:
        repeats = line.count(b'"%s"' % field.encode()) > 1
        found = json.loads(line, object_pairs_hook=without_repeats if repeats else None)
        if not isinstance(found, dict):
            return ValueError("is not a JSON object")
        if not isinstance(found.get(field), str):
            return ValueError(f"has no text in the field {field!r} (--text-field)")
        found[field].encode("utf-8")  # half of a surrogate pair is valid JSON, but not a text
    except Repeated as error:
        return error
    except UnicodeDecodeError as error:
        return ValueError(f"is not UTF-8 ({error.reason}, byte 0x{line[error.start]:02x})")
    except UnicodeEncodeError as error:
        half = f"\\u{ord(error.object[error.start]):04x}"
        return ValueError(f"is not Unicode: the field {field!r} holds {half} without the other half of its pair")
    except (ValueError, RecursionError) as error:
        if line.count(b"\r") > 1:
            return ValueError(f"contains carriage returns, which do not end lines ({TO_LINE_FEEDS})")
        return ValueError(f"is not JSON ({error})")
    return found[field]


def without_repeats(pairs: List[Tuple[str, Any]]) -> Dict[str, Any]:
    """Return a JSON object; raises Repeated if a field occurs twice, as only the last would be read."""
    found = dict(pairs)
    if len(found) < len(pairs):
        name = next(name for place, (name, _) in enumerate(pairs) if name in dict(pairs[:place]))
        raise Repeated(f"has the field {name!r} twice in one object")
    return found


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
            if not line:
                raise ValueError(
                    f"{source.path} ended at byte {place}, before {end}: the file changed during reading; start again"
                )
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
