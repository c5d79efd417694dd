"""Byte-pair encoding as subword-nmt does it: learning joint merges, and segmenting with them."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Sequence

from fairseq_mega.lab.prepare.progress import Progress
from fairseq_mega.lab.prepare.wmt16.line_pool import LineFunction
from fairseq_mega.lab.runs.files import count_lines, read_lines, written_whole


@dataclass(frozen=True)
class BpeFactory:
    """Byte-pair encoding with the merges of a ``codes`` file; a piece within a word ends in ``@@``.

    Picklable, for :func:`fairseq_mega.lab.prepare.wmt16.line_pool.transform`.
    """

    codes: str

    def __call__(self) -> LineFunction:
        """Build the function from a tokenised line to a segmented one."""
        from subword_nmt.apply_bpe import BPE

        with open(self.codes, encoding="utf-8", newline="\n") as stream:
            segment: Callable[[str], str] = BPE(stream).segment
        return segment


def count_words(paths: Sequence[Path]) -> Dict[str, int]:
    """Return how often every word occurs in the tokenised texts."""
    words: Counter[str] = Counter()
    for path in paths:
        for line in Progress(f"counting {path.name}", "lines", count_lines(path)).follow(read_lines(path)):
            words.update(filter(None, line.split(" ")))
    return words


def learn_bpe(paths: Sequence[Path], codes: Path, merges: int) -> int:
    """Learn ``merges`` joint merges on the concatenation of the texts, write them and return their number.

    Raises ValueError when there are no words. Fewer merges result only where no pair is left that
    occurs twice.
    """
    from subword_nmt.learn_bpe import learn_bpe as learn

    words = count_words(paths)
    if not words:
        raise ValueError(f"no words in {', '.join(map(str, paths))}; repeat the tokenisation")
    with written_whole(codes) as partial:
        with open(partial, "w", encoding="utf-8", newline="\n") as stream:
            learn([f"{word} {count}" for word, count in words.items()], stream, merges, is_dict=True)
        found = count_lines(partial) - 1  # the first line names the format
        if found < 1:
            raise ValueError(
                f"no pair of characters occurs twice in {', '.join(map(str, paths))}: the text is too small"
            )
    return found
