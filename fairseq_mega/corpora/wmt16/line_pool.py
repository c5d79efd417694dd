"""Send the lines of a text file through a function in several processes, in order and with progress lines."""

import multiprocessing
import os
import time
from itertools import islice
from pathlib import Path
from typing import Callable, Iterator, List, Optional

from fairseq_mega.corpora.download import say

BLOCK_LINES = 500
BLOCKS_PER_PROCESS = 8
REPORT_SECONDS = 15.0

LineFunction = Callable[[str], str]
_function: Optional[LineFunction] = None


class TextError(ValueError):
    """A text file cannot be processed; the message names the file, the line and the remedy."""


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line feed, cut at ``\\n`` only, as ``wc -l`` counts them.

    Raises :class:`TextError` naming the line that is no UTF-8.
    """
    with open(path, "rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                yield (line[:-1] if line.endswith(b"\n") else line).decode("utf-8")
            except UnicodeDecodeError as error:
                raise TextError(f"{path}: line {number} is not UTF-8 ({error.reason}); convert the file") from error


def count_lines(path: Path) -> int:
    """Return the number of lines of a file; an unfinished last line counts."""
    lines, last = 0, b"\n"
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(1 << 20), b""):
            lines += block.count(b"\n")
            last = block[-1:]
    return lines + (last != b"\n")


class Progress:
    """Prints lines done, lines per second and minutes left, at most every :data:`REPORT_SECONDS`."""

    def __init__(self, name: str, total: int) -> None:
        self.name, self.total, self.done = name, total, 0
        self.begun = self.reported = time.monotonic()

    def advance(self, lines: int) -> None:
        """Count ``lines`` more."""
        self.done += lines
        now = time.monotonic()
        if now - self.reported >= REPORT_SECONDS:
            self.reported = now
            rate = self.done / (now - self.begun)
            left = (self.total - self.done) / rate / 60
            say(f"{self.name}: {self.done} of {self.total} lines, {rate:.0f} lines/s, {left:.1f} min left")


def _install(make_function: Callable[[], LineFunction]) -> None:
    global _function
    _function = make_function()


def _apply(lines: List[str]) -> List[str]:
    assert _function is not None
    return [_function(line) for line in lines]


def transform(
    source: Path, target: Path, make_function: Callable[[], LineFunction], processes: int, name: str = ""
) -> int:
    """Write ``function(line)`` for every line of ``source`` to ``target`` and return the number of lines.

    ``make_function`` is picklable and makes the function once per process. ``target`` appears whole or not at
    all. Raises :class:`TextError` when a result holds a line feed, which would shift all later lines, or when
    ``source`` is empty.
    """
    progress = Progress(name or source.name, count_lines(source))
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    with multiprocessing.Pool(processes, _install, (make_function,)) as pool, open(
        partial, "w", encoding="utf-8", newline="\n"
    ) as stream:
        blocks = _blocks(read_lines(source))
        # Rounds bound the memory: Pool.imap by itself would read the whole file ahead.
        for batch in iter(lambda: list(islice(blocks, processes * BLOCKS_PER_PROCESS)), []):
            for results in pool.imap(_apply, batch):
                for offset, line in enumerate(results):
                    if "\n" in line:
                        raise TextError(f"{source}: line {progress.done + offset + 1} became several lines: {line!r}")
                stream.writelines(line + "\n" for line in results)
                progress.advance(len(results))
    if progress.done == 0:
        partial.unlink()
        raise TextError(f"{source} is empty; repeat the stage that made it")
    os.replace(partial, target)
    return progress.done


def _blocks(lines: Iterator[str]) -> Iterator[List[str]]:
    return iter(lambda: list(islice(lines, BLOCK_LINES)), [])
