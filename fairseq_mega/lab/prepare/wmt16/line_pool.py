"""Apply a function to the lines of a text file in several processes, in order and with progress lines."""

from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.runs.files import count_lines, read_lines, written_whole

BLOCK_LINES = 500

LineFunction = Callable[[str], str]


@lru_cache(maxsize=1)
def _function_of(make_function: Callable[[], LineFunction]) -> LineFunction:
    return make_function()


def _apply(make_function: Callable[[], LineFunction], lines: List[str]) -> List[str]:
    return list(map(_function_of(make_function), lines))


def transform(
    source: Path, target: Path, make_function: Callable[[], LineFunction], processes: int, name: str = ""
) -> int:
    """Write ``function(line)`` for every line of ``source`` to ``target`` and return the number of lines.

    ``make_function`` is picklable and hashable, and makes the function once per process. ``target`` appears whole or
    not at all. Raises ValueError when a result holds a line feed, which would shift all later lines, or when ``source``
    is empty.
    """
    total, done = count_lines(source), 0
    if not total:
        raise ValueError(f"{source} is empty; repeat the stage that made it")
    progress, lines = Progress(name or source.name, "lines", total), read_lines(source)
    blocks = iter(lambda: list(islice(lines, BLOCK_LINES)), [])
    with written_whole(target) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
        for results in in_order(partial(_apply, make_function), blocks, processes):
            for number, line in enumerate(results, start=done + 1):
                if "\n" in line:
                    raise ValueError(f"{source}: line {number} became several lines: {line!r}")
                stream.write(line + "\n")
            done += len(results)
            progress.reach(done)
    return done


def transform_missing(jobs: Sequence[Tuple[Path, Path, Callable[[], LineFunction]]], processes: int) -> None:
    """Run :func:`transform` for each (source, target, make_function) whose target is absent.

    A target that is there must have as many lines as its source, otherwise ValueError is raised.
    """
    for source, target, make_function in jobs:
        if target.exists():
            expected, found = count_lines(source), count_lines(target)
            if expected != found:
                raise ValueError(f"{target}: expected {expected} lines as in {source}, found {found}; remove it")
            say(f"{target.name}: there already, {found} lines")
        else:
            found = transform(source, target, make_function, processes, name=target.name)
            say(f"{target.name}: {found} lines")
