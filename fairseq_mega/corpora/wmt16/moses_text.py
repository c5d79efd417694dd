"""Line functions of the WMT preparation: Moses cleaning and tokenisation, byte-pair encoding, length filter.

The classes are picklable factories for :func:`fairseq_mega.corpora.wmt16.line_pool.transform`: called in a worker they
build the function there. The Moses scripts are those of the mosesdecoder project, in sacremoses' Python port.
"""

import os
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, List, Sequence, Tuple

from fairseq_mega.corpora.wmt16.line_pool import LineFunction, Progress, TextError, count_lines, read_lines, transform

INSTALL = "pip install 'fairseq_mega[translation]'"


@dataclass(frozen=True)
class TokenizerFactory:
    """Moses tokenisation without escaping and without splitting at hyphens; for training text cleaning first.

    ``clean=True`` puts remove-non-printing-char and normalize-punctuation before it, as done for training text
    only. Moses replaces a non-printing character by a space, where sacremoses' ``remove_control_chars`` drops
    it and would join the words beside it; the space is kept here.
    """

    language: str
    clean: bool

    def __call__(self) -> LineFunction:
        """Build the function from a raw line to a tokenised one."""
        try:
            import regex
            from sacremoses import MosesPunctNormalizer, MosesTokenizer
        except ImportError as error:
            raise TextError(f"tokenisation needs sacremoses: {INSTALL}") from error
        tokenizer = MosesTokenizer(lang=self.language)

        def tokenize(line: str) -> str:
            return " ".join(tokenizer.tokenize(line, aggressive_dash_splits=False, escape=False))

        if not self.clean:
            return tokenize
        non_printing = regex.compile(r"\p{C}")
        try:
            normalizer = MosesPunctNormalizer(lang=self.language, perl_parity=True)
        except TypeError as error:
            raise TextError(f"sacremoses is older than 0.1, which normalises unlike Moses: {INSTALL}") from error
        return lambda line: tokenize(normalizer.normalize(non_printing.sub(" ", line)))


@dataclass(frozen=True)
class BpeFactory:
    """Byte-pair encoding with the merges of a ``codes`` file; pieces that go on end in ``@@``."""

    codes: str

    def __call__(self) -> LineFunction:
        """Build the function from a tokenised line to a segmented one."""
        try:
            from subword_nmt.apply_bpe import BPE
        except ImportError as error:
            raise TextError(f"byte-pair encoding needs subword-nmt: {INSTALL}") from error
        with open(self.codes, encoding="utf-8", newline="\n") as stream:
            segment: Callable[[str], str] = BPE(stream).segment
        return segment


def count_words(paths: Sequence[Path]) -> Dict[str, int]:
    """Return how often every word occurs in the tokenised texts."""
    words: Dict[str, int] = Counter()
    for path in paths:
        progress = Progress(f"counting {path.name}", count_lines(path))
        for line in read_lines(path):
            for word in line.split(" "):
                if word:
                    words[word] += 1
            progress.advance(1)
    return words


def learn_bpe(paths: Sequence[Path], codes: Path, merges: int) -> int:
    """Learn ``merges`` joint merges on the concatenation of the texts, write them and return their number.

    Raises :class:`TextError` when there are no words. Fewer merges result only where no pair is left that
    occurs twice.
    """
    try:
        from subword_nmt.learn_bpe import learn_bpe as learn
    except ImportError as error:
        raise TextError(f"byte-pair encoding needs subword-nmt: {INSTALL}") from error
    words = count_words(paths)
    if not words:
        raise TextError(f"no words in {', '.join(map(str, paths))}; repeat the tokenisation")
    codes.parent.mkdir(parents=True, exist_ok=True)
    partial = codes.with_name(codes.name + ".partial")
    with open(partial, "w", encoding="utf-8", newline="\n") as stream:
        learn([f"{word} {count}" for word, count in words.items()], stream, merges, is_dict=True)
    found = count_lines(partial) - 1  # the first line names the format
    if found < 1:
        raise TextError(f"no pair of characters occurs twice in {', '.join(map(str, paths))}: the text is too small")
    os.replace(partial, codes)
    return found


def keep_pair(lengths: Tuple[int, int], ratio: float, shortest: int, longest: int) -> bool:
    """Say whether a pair of sentences with these numbers of tokens passes the rule of Moses' clean-corpus-n."""
    low, high = min(lengths), max(lengths)
    return shortest <= low and high <= longest and high <= ratio * low


def clean_corpus(
    source: Path, target: Path, languages: Sequence[str], ratio: float = 1.5, shortest: int = 3, longest: int = 150
) -> Tuple[int, int]:
    """Copy the pairs that :func:`keep_pair` accepts from ``source.<language>`` to ``target.<language>``.

    Returns the numbers of pairs read and kept. Raises :class:`TextError` when the files have different numbers
    of lines or nothing is kept.
    """
    inputs = [source.with_name(f"{source.name}.{language}") for language in languages]
    outputs = [target.with_name(f"{target.name}.{language}") for language in languages]
    lines = [count_lines(path) for path in inputs]
    if lines[0] != lines[1]:
        raise TextError(
            f"{inputs[0]} has {lines[0]} lines, {inputs[1]} has {lines[1]}; repeat the stage that made them"
        )
    target.parent.mkdir(parents=True, exist_ok=True)
    partials = [path.with_name(path.name + ".partial") for path in outputs]
    progress, kept = Progress(f"cleaning {source.name}", lines[0]), 0
    with open(partials[0], "w", encoding="utf-8", newline="\n") as first, open(
        partials[1], "w", encoding="utf-8", newline="\n"
    ) as second:
        for left, right in zip(read_lines(inputs[0]), read_lines(inputs[1])):
            if keep_pair((len(left.split()), len(right.split())), ratio, shortest, longest):
                first.write(" ".join(left.split()) + "\n")
                second.write(" ".join(right.split()) + "\n")
                kept += 1
            progress.advance(1)
    if kept == 0:
        raise TextError(
            f"none of {lines[0]} pairs of {source} has {shortest} to {longest} tokens and a length ratio up to {ratio}"
        )
    for partial, output in zip(partials, outputs):
        os.replace(partial, output)
    return lines[0], kept


def transform_missing(
    jobs: Sequence[Tuple[Path, Path, Callable[[], LineFunction]]], processes: int, say: Callable[[str], None]
) -> List[int]:
    """Run :func:`transform` for each (source, target, factory) whose target is absent; return the line counts.

    A target that is there must have as many lines as its source, otherwise :class:`TextError` is raised.
    """
    counts = []
    for source, target, factory in jobs:
        if target.exists():
            expected, found = count_lines(source), count_lines(target)
            if expected != found:
                raise TextError(f"{target}: expected {expected} lines as in {source}, found {found}; remove it")
            say(f"{target.name}: there already, {found} lines")
        else:
            found = transform(source, target, factory, processes, name=target.name)
            say(f"{target.name}: {found} lines")
        counts.append(found)
    return counts
