"""The length filter for training pairs, which is Moses' clean-corpus-n."""

from contextlib import ExitStack
from pathlib import Path
from typing import Sequence, Tuple

from fairseq_mega.lab.prepare.progress import Progress
from fairseq_mega.lab.runs.files import count_lines, read_lines, written_whole

SHORTEST, LONGEST, RATIO = 3, 150, 1.5  # tokens of a sentence; the longer of a pair to the shorter


def keep_pair(lengths: Tuple[int, int]) -> bool:
    """Return whether a pair of sentences with these numbers of tokens passes the rule of Moses' clean-corpus-n."""
    low, high = min(lengths), max(lengths)
    return low >= SHORTEST and high <= LONGEST and high <= RATIO * low


def clean_corpus(source: Path, target: Path, languages: Sequence[str]) -> Tuple[int, int]:
    """Copy the pairs that :func:`keep_pair` accepts from ``source.<language>`` to ``target.<language>``.

    Returns the numbers of pairs read and kept. Raises ValueError when the files have different numbers
    of lines or nothing is kept.
    """
    inputs = [source.with_name(f"{source.name}.{language}") for language in languages]
    outputs = [target.with_name(f"{target.name}.{language}") for language in languages]
    lines = [count_lines(path) for path in inputs]
    if lines[0] != lines[1]:
        raise ValueError(
            f"{inputs[0]} has {lines[0]} lines, {inputs[1]} has {lines[1]}; repeat the stage that made them"
        )
    progress, kept = Progress(f"cleaning {source.name}", "lines", lines[0]), 0
    with ExitStack() as stack:
        partials = [stack.enter_context(written_whole(path)) for path in outputs]
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in partials]
        for pair in progress.follow(zip(*map(read_lines, inputs))):
            left, right = (line.split() for line in pair)
            if keep_pair((len(left), len(right))):
                for file, words in zip(files, (left, right)):
                    file.write(" ".join(words) + "\n")
                kept += 1
        if kept == 0:
            raise ValueError(
                f"none of {lines[0]} pairs of {source} has {SHORTEST} to {LONGEST} tokens and a length ratio up to "
                f"{RATIO}"
            )
    return lines[0], kept
