"""Write texts and JSON whole or not at all, check their folders, and read files block by block."""

import json
import os
from pathlib import Path
from typing import IO, Any, Iterator, List, Optional

from fairseq_mega.compat.files.saving import written_whole

BLOCK = 1 << 20


def existing_parent(folder: Path) -> Path:
    """Return the folder itself, or the nearest existing folder above it."""
    return next(above for above in (folder, *folder.parents) if above.exists())


def in_the_way_of(folder: Path) -> Optional[Path]:
    """Return the nearest path that keeps a folder from being created or written to; None if nothing does."""
    above = existing_parent(folder)
    return None if above.is_dir() and os.access(above, os.W_OK) else above


def check_writable(option: str, path: Path) -> None:
    """Raise a ValueError that names the option unless its file can be written."""
    above = path if path.is_dir() else in_the_way_of(path.parent)
    if above is not None:
        problem = "a folder" if path.is_dir() else "not a folder that may be written to"
        raise ValueError(f"{option} {path} cannot be written: {above} is {problem}")


def write_text(path: Path, text: str) -> None:
    """Write a text."""
    with written_whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write JSON, indented."""
    write_text(path, json.dumps(content, indent=2) + "\n")


def read_json_lines(path: Path) -> List[Any]:
    """Return the JSON values of a file's lines, none without a file; remove an incomplete last line, left by a kill."""
    text = path.read_bytes() if path.exists() else b""
    whole = text[: text.rfind(b"\n") + 1]
    if whole != text:
        os.truncate(path, len(whole))
    return [json.loads(line) for line in whole.splitlines()]


def add_json_line(path: Path, value: Any) -> None:
    """Add a JSON value to a file, as a line that is on disk at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(value, ensure_ascii=False) + "\n")


def blocks_of(stream: IO[bytes]) -> Iterator[bytes]:
    """Yield the rest of a stream in blocks of 1 MiB."""
    return iter(lambda: stream.read(BLOCK), b"")


def copy_stream(source: IO[bytes], target: Path) -> None:
    """Write a stream to the file ``target``."""
    with written_whole(target) as partial, open(partial, "wb") as stream:
        for block in blocks_of(source):
            stream.write(block)


def read_lines(path: Path) -> Iterator[str]:
    r"""Yield the lines of a file in UTF-8 that an earlier step wrote, without line ends: split at `\n` only."""
    with open(path, encoding="utf-8", newline="\n") as lines:
        for line in lines:
            yield line.rstrip("\n")


def count_lines(path: Path) -> int:
    """Return the number of lines of a file; an unfinished last line counts."""
    lines, last = 0, b"\n"
    with open(path, "rb") as stream:
        for block in blocks_of(stream):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")
