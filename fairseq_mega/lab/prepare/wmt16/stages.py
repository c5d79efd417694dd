"""The steps of WMT'16's text after its archives: sacremoses' words, subword-nmt's subwords, and the length filter."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, islice
from pathlib import Path
from typing import Callable, List, Sequence, Tuple

from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order
from fairseq_mega.lab.prepare.progress import Progress, print_line
from fairseq_mega.lab.runs.files import count_lines, read_lines, written_whole

BLOCK_LINES = 500
SHORTEST, LONGEST, RATIO = 3, 150, 1.5  # tokens of a sentence; the longer of a pair to the shorter
LineFunction = Callable[[str], str]


@dataclass(frozen=True)
class TokenizerFactory:
    """Moses tokenisation without escaping and without splitting at hyphens; for training text cleaning first.

    ``clean=True`` puts remove-non-printing-char and normalize-punctuation before it, as done for training text only.
    Moses replaces a non-printing character by a space, where sacremoses' ``remove_control_chars`` drops it and would
    join the words beside it; the space is kept here.
    """

    language: str
    clean: bool

    def __call__(self) -> LineFunction:
        """Build the function from a raw line to a tokenised one."""
        import regex
        from sacremoses import MosesPunctNormalizer, MosesTokenizer

        tokenizer = MosesTokenizer(lang=self.language)

        def tokenize(line: str) -> str:
            return " ".join(tokenizer.tokenize(line, aggressive_dash_splits=False, escape=False))

        if not self.clean:
            return tokenize
        non_printing = regex.compile(r"\p{C}")
        normalizer = MosesPunctNormalizer(lang=self.language, perl_parity=True)
        return lambda line: tokenize(normalizer.normalize(non_printing.sub(" ", line)))


@dataclass(frozen=True)
class BpeFactory:
    """Byte-pair encoding with the merges of a ``codes`` file; a subword within a word ends in ``@@``."""

    codes: str

    def __call__(self) -> LineFunction:
        """Build the function from a tokenised line to a segmented one."""
        from subword_nmt.apply_bpe import BPE

        with open(self.codes, encoding="utf-8", newline="\n") as stream:
            segment: LineFunction = BPE(stream).segment
        return segment


def learn_bpe(paths: Sequence[Path], codes: Path, merges: int) -> None:
    """Learn ``merges`` joint merges on the concatenation of the texts, and write them."""
    from subword_nmt.learn_bpe import learn_bpe as learn

    with written_whole(codes) as partial_file, open(partial_file, "w", encoding="utf-8", newline="\n") as stream:
        learn(chain.from_iterable(map(read_lines, paths)), stream, merges)


@lru_cache(maxsize=1)
def _function_of(make_function: Callable[[], LineFunction]) -> LineFunction:
    return make_function()


def _apply(make_function: Callable[[], LineFunction], lines: List[str]) -> List[str]:
    return list(map(_function_of(make_function), lines))


def transform(source: Path, target: Path, make_function: Callable[[], LineFunction], processes: int) -> None:
    """Write ``function(line)`` for every line of ``source`` to ``target``, unless it is there.

    ``make_function`` is picklable and hashable, and makes the function once per process. ``target`` appears whole or
    not at all.

    Raises:
        ValueError: a result holds a line feed, which would shift all later lines.
    """
    if target.exists():
        return
    lines = Progress(target.name, "lines", count_lines(source)).follow(read_lines(source))
    blocks = iter(lambda: list(islice(lines, BLOCK_LINES)), [])
    with written_whole(target) as unfinished, open(unfinished, "w", encoding="utf-8", newline="\n") as stream:
        for line in chain.from_iterable(in_order(partial(_apply, make_function), blocks, processes)):
            if "\n" in line:
                raise ValueError(f"{source}: a line became several lines: {line!r}")
            stream.write(line + "\n")
    print_line(f"{target.name}: {count_lines(target)} lines")


def keep_pair(lengths: Tuple[int, int]) -> bool:
    """Return whether a pair of sentences with these numbers of tokens passes the rule of Moses' clean-corpus-n."""
    low, high = min(lengths), max(lengths)
    return low >= SHORTEST and high <= LONGEST and high <= RATIO * low


def clean_corpus(source: Path, target: Path, languages: Sequence[str]) -> Tuple[int, int]:
    """Copy the pairs that :func:`keep_pair` accepts from ``source.<language>`` to ``target.<language>``.

    Return the numbers of pairs read and kept.
    """
    read = kept = 0
    sides = [read_lines(source.with_name(f"{source.name}.{language}")) for language in languages]
    with ExitStack() as stack:
        outputs = [target.with_name(f"{target.name}.{language}") for language in languages]
        partials = [stack.enter_context(written_whole(path)) for path in outputs]
        files = [stack.enter_context(open(path, "w", encoding="utf-8", newline="\n")) for path in partials]
        for pair in Progress(f"cleaning {source.name}", "lines", None).follow(zip(*sides)):
            left, right = (line.split() for line in pair)
            read += 1
            if keep_pair((len(left), len(right))):
                kept += 1
                for file, words in zip(files, (left, right)):
                    file.write(" ".join(words) + "\n")
    return read, kept
