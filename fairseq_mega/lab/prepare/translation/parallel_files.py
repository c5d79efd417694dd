"""Files of parallel text: line n of the target file translates line n of the source file."""

from pathlib import Path
from typing import Collection, List, Optional

from fairseq_mega.lab.prepare.splits import MINIMUM_PAIRS, SPLITS
from fairseq_mega.lab.prepare.text_files import BYTE_ORDER_MARK, decoded_lines
from fairseq_mega.lab.prepare.translation.parallel_text import Corpus, Pair, clean_text


def read_sentences(path: Path) -> List[str]:
    r"""Read a text file as UTF-8, with lines that end at `\n`; other line separators remain part of a line.

    Raises:
        OSError: no such file.
        ValueError: for bytes that are not UTF-8 (names file and line).
    """
    return [line.rstrip("\r\n").lstrip(BYTE_ORDER_MARK) for line in decoded_lines(path)]


def read_pairs(prefix: str, source_lang: str, target_lang: str) -> List[Pair]:
    """Read and clean the pairs of `prefix.source_lang` and `prefix.target_lang`, empty lines included.

    Raises:
        OSError: a file is missing.
        ValueError: for files that are not UTF-8, or differ in length.
    """
    paths = [Path(f"{prefix}.{lang}") for lang in (source_lang, target_lang)]
    sides = [read_sentences(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise ValueError(
            f"{paths[0]} has {len(sides[0])} lines but {paths[1]} has {len(sides[1])}: line n of one must "
            "be the translation of line n of the other; remove surplus lines or add missing ones"
        )
    return [Pair(clean_text(source), clean_text(target)) for source, target in zip(*sides)]


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
    folder.mkdir(parents=True, exist_ok=True)
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
        write_pairs(str(folder / name), source_lang, target_lang, pairs)


def describe_dropped(corpus: Corpus) -> str:
    """Return a text on the numbers of dropped pairs by reason, the commonest first."""
    return ", ".join(f"{count} {reason}" for reason, count in corpus.dropped.most_common()) or "none"
