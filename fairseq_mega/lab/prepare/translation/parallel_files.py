"""Files of parallel text: line n of the target file translates line n of the source file."""

from pathlib import Path
from typing import Collection, List, Optional

from fairseq_mega.data.text_cleaning import BYTE_ORDER_MARK
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.splits import MINIMUM_PAIRS, SPLITS
from fairseq_mega.lab.prepare.text_files import decoded_lines
from fairseq_mega.lab.prepare.translation.corpus import Corpus
from fairseq_mega.lab.prepare.translation.parallel_text import Pair, clean_text
from fairseq_mega.lab.runs.files import LINE_ENDS, ends_no_line

COPIES = 0.05  # share of lines that equal their translation, unlike names and numbers
TABLE = 0.9  # share of lines with a TAB in a table


def read_sentences(path: Path) -> List[str]:
    r"""Read a text file as UTF-8, with lines that end at `\n`; other line separators remain part of a line.

    Raises:
        FileNotFoundError: no such file.
        ValueError: for bytes that are not UTF-8 (names file and line), or a file without text.
    """
    if not path.is_file():
        raise FileNotFoundError(f"{path}: no such file; a prefix P names the files P.<source> and P.<target>, unpacked")
    lines = [line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK) for line in decoded_lines(path)]
    for end in LINE_ENDS:
        if sum(line.count(end) for line in lines) > len(lines):
            raise ValueError(f"{path}: {ends_no_line(path, end)}")
    if not any(line.strip() for line in lines):
        raise ValueError(f"{path}: the file holds no text ({len(lines)} lines); write one sentence per line")
    return lines


def read_pairs(prefix: str, source_lang: str, target_lang: str) -> List[Pair]:
    """Read and clean the pairs of `prefix.source_lang` and `prefix.target_lang`, empty lines included.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: for files that are not UTF-8, have no text, or differ in length.
    """
    paths = [Path(f"{prefix}.{lang}") for lang in (source_lang, target_lang)]
    sides = [read_sentences(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}: line n of one must "
            "be the translation of line n of the other; remove surplus lines or add missing ones"
        )
    for path, lines in zip(paths, sides):
        text = [line.strip() for line in lines if line.strip()]
        cells = sum("\t" in line for line in text)
        if cells >= TABLE * len(text):
            say(
                f"note: {cells:,} of the {len(text):,} lines of {path} contain a TAB, like a table; its columns are "
                "read as one sentence"
            )
    if sides[0] == sides[1]:
        say(f"note: {paths[0]} and {paths[1]} are the same: a model of them learns to repeat its input")
    pairs = [Pair(clean_text(source), clean_text(target)) for source, target in zip(*sides)]
    filled = [pair for pair in pairs if pair[0] or pair[1]]
    copies = sum(source == target for source, target in filled)
    if len(filled) > copies > max(2, COPIES * len(filled)):
        say(
            f"note: {copies:,} of the {len(filled):,} lines of {paths[1]} equal those of {paths[0]}: "
            "without a translation, a model learns to repeat its input"
        )
    empty = [[number for number, pair in enumerate(pairs, 1) if not pair[side] and pair[1 - side]] for side in (0, 1)]
    if empty[0] and empty[1]:
        say(
            f"note: line {empty[0][0]} of {paths[0]} is empty and line {empty[1][0]} of {paths[1]}, each of them "
            f"alone: if the lines between them are shifted, they are not translations: align the lines"
        )
    return pairs


def write_pairs(prefix: str, source_lang: str, target_lang: str, pairs: List[Pair]) -> None:
    """Write pairs, one per line, to the files `prefix.source_lang` and `prefix.target_lang`."""
    for side, lang in enumerate((source_lang, target_lang)):
        with open(f"{prefix}.{lang}", "w", encoding="utf-8", newline="\n") as file:
            file.writelines(f"{pair[side]}\n" for pair in pairs)


def write_corpus(
    corpus: Corpus,
    folder: Path,
    source_lang: str,
    target_lang: str,
    limit: Optional[int] = None,
    whole: Collection[str] = (),
) -> None:
    """Write every split to `folder` as `<split>.<lang>`.

    Args:
        limit: maximum number of training pairs; every other split keeps a twentieth of this number.
        whole: splits without the limit.

    Raises:
        ValueError: if a split has too few pairs to learn from or to be scored.
    """
    for name in SPLITS:
        pairs = corpus.splits[name]
        if limit is not None and name not in whole:
            kept = limit if name == "train" else max(limit // 20, MINIMUM_PAIRS[name])
            pairs = corpus.splits[name] = pairs[:kept]
        if len(pairs) < MINIMUM_PAIRS[name]:
            remedy = "give more text" if name == "train" else f"give more text, or --{name} PREFIX"
            raise ValueError(
                f"too few {name} pairs: {len(pairs)} left, at least {MINIMUM_PAIRS[name]} needed "
                f"(dropped: {describe_dropped(corpus)}); {remedy}"
            )
    folder.mkdir(parents=True, exist_ok=True)
    for name in SPLITS:
        write_pairs(str(folder / name), source_lang, target_lang, corpus.splits[name])


def describe_dropped(corpus: Corpus) -> str:
    """Return a text on the numbers of dropped pairs by reason, the commonest first."""
    return ", ".join(f"{count} {reason}" for reason, count in corpus.dropped.most_common()) or "none"
