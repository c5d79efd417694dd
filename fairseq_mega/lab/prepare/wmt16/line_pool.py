"""Send the lines of a text file through a function in several processes, in order and with progress lines."""

import multiprocessing
from itertools import islice
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Sequence, Tuple

from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.runs.files import count_lines, written_whole

BLOCK_LINES = 500
BLOCKS_PER_PROCESS = 8

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
    progress = Progress(name or source.name, "lines", count_lines(source))
    done = 0
    with written_whole(target) as partial:
        with multiprocessing.Pool(processes, _install, (make_function,)) as pool, open(
            partial, "w", encoding="utf-8", newline="\n"
        ) as stream:
            blocks = _blocks(read_lines(source))
            # Rounds bound the memory: Pool.imap by itself would read the whole file ahead.
            for batch in iter(lambda: list(islice(blocks, processes * BLOCKS_PER_PROCESS)), []):
                for results in pool.imap(_apply, batch):
                    for number, line in enumerate(results, start=done + 1):
                        if "\n" in line:
                            raise TextError(f"{source}: line {number} became several lines: {line!r}")
                    stream.writelines(line + "\n" for line in results)
                    done += len(results)
                    progress.reach(done)
        if done == 0:
            partial.unlink()
            raise TextError(f"{source} is empty; repeat the stage that made it")
    return done


def _blocks(lines: Iterator[str]) -> Iterator[List[str]]:
    return iter(lambda: list(islice(lines, BLOCK_LINES)), [])


def transform_missing(jobs: Sequence[Tuple[Path, Path, Callable[[], LineFunction]]], processes: int) -> List[int]:
    """Run :func:`transform` for each (source, target, make_function) whose target is absent; return the line counts.

    A target that is there must have as many lines as its source, otherwise :class:`TextError` is raised.
    """
    counts = []
    for source, target, make_function in jobs:
        if target.exists():
            expected, found = count_lines(source), count_lines(target)
            if expected != found:
                raise TextError(f"{target}: expected {expected} lines as in {source}, found {found}; remove it")
            say(f"{target.name}: there already, {found} lines")
        else:
            found = transform(source, target, make_function, processes, name=target.name)
            say(f"{target.name}: {found} lines")
        counts.append(found)
    return counts
