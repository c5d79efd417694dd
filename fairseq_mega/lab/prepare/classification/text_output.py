"""Texts with labels in the layout of the text tasks: binarised as by fairseq-preprocess --only-source.

``src-bin`` contains the texts (``src1-bin`` the second texts of pairs), ``label-bin`` the labels. Each has train, valid
and test as ``.bin`` and ``.idx``, and dict.txt: symbols by falling frequency in train, ties in their order as strings.
The two texts of a pair share one dictionary.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.data.text_units import own_symbols
from fairseq_mega.lab.prepare.binarised import binarised_counts
from fairseq_mega.lab.prepare.progress import Progress, say

BYTE_SYMBOLS = tuple(map(str, range(256)))
BYTES_SEEN = (50, 300)  # symbols of a dictionary of bytes: those that occur, and perhaps symbols that fill it up
SOURCES = ("src-bin", "src1-bin")
LABELS = "label-bin"


class Example(NamedTuple):
    """One text or two, each the numbers of its symbols (length,), and the label."""

    texts: Tuple[np.ndarray, ...]
    label: str


class TextSplit(NamedTuple):
    """The examples of a split, which are read twice, and the number of examples."""

    size: int
    examples: Callable[[], Iterable[Example]]


def byte_text(text: bytes, length: int) -> np.ndarray:
    """Return the first ``length`` bytes of a text as numbers of BYTE_SYMBOLS, (n,) uint8."""
    return np.frombuffer(text[:length], dtype=np.uint8)


def byte_split(rows: Sequence[Tuple[Tuple[bytes, ...], str]], length: int) -> TextSplit:
    """Return a split of texts with their labels, each text cut to its first ``length`` bytes."""

    def examples() -> Iterable[Example]:
        return (Example(tuple(byte_text(text, length) for text in texts), label) for texts, label in rows)

    return TextSplit(len(rows), examples)


def write_text_task(
    folder: Path,
    splits: Dict[str, TextSplit],
    symbols: Sequence[str],
    labels: Sequence[str],
    like: Optional[Tuple[Any, Any]] = None,
) -> Dict[str, Dict[str, Any]]:
    """Binarise all splits below ``folder`` and return the counts of each.

    As with fairseq-preprocess, a symbol that train lacks becomes ``<unk>``; a label does not.

    Args:
        symbols: names of the numbers in the texts.
        labels: all possible labels.
        like: dictionaries of texts and labels, taken instead of those of train.

    Raises:
        ValueError: for a split without examples.
    """
    for split, texts in splits.items():
        if texts.size == 0:
            raise ValueError(f"{split} has no example; give more data")
    counts = np.zeros(len(symbols), dtype=np.int64)
    label_counts = dict.fromkeys(labels, 0)
    for example in _counted("train, counting the symbols", splits["train"]):
        label_counts[example.label] += 1
        for text in example.texts:
            counts += np.bincount(text, minlength=len(symbols))
    sides = len(example.texts)
    if like is None:
        like = _dictionary({s: count for s, count in zip(symbols, counts.tolist()) if count}), _dictionary(label_counts)
    source_dictionary, label_dictionary = like
    numbers = np.array([source_dictionary.index(symbol) for symbol in symbols])
    sources = SOURCES[:sides]
    for name in sources:
        _save(source_dictionary, folder / name)
    _save(label_dictionary, folder / LABELS)
    statistics = {}
    for split, texts in splits.items():
        builders = [_Builder(folder / name, split, len(source_dictionary)) for name in sources]
        label_builder = _Builder(folder / LABELS, split, len(label_dictionary))
        found: Counter = Counter()
        for example in _counted(split, texts):
            for builder, text in zip(builders, example.texts):
                builder.add(numbers[text], source_dictionary.eos())
            label_builder.add(np.array([label_dictionary.index(example.label)]), label_dictionary.eos())
            found[example.label] += 1
        for builder in [*builders, label_builder]:
            builder.finish()
        checked = {name: _check(folder / name, split, source_dictionary, texts.size) for name in sources}
        _check(folder / LABELS, split, label_dictionary, texts.size)
        statistics[split] = {"examples": texts.size, "labels": dict(sorted(found.items())), **checked}
        tokens = sum(count["tokens"] for count in checked.values())
        unknown = sum(count["unknown"] for count in checked.values())
        lost = f"; {unknown:,} of all are <unk>, symbols that train lacks" if unknown else ""
        say(f"{split}: {texts.size} examples, {tokens / texts.size / sides:.0f} tokens on average, with </s>{lost}")
    say(f"dictionaries: {len(source_dictionary)} symbols, {len(labels)} labels, the special ones included in the first")
    return statistics


def _counted(name: str, split: TextSplit) -> Iterable[Example]:
    return Progress(name, "examples", split.size).follow(split.examples())


def _dictionary(counts: Dict[str, int]) -> Any:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for symbol, count in counts.items():
        dictionary.add_symbol(symbol, n=count)
    dictionary.finalize()
    return dictionary


def dictionaries_of(folder: Path) -> Tuple[Any, Any]:
    """Return the dictionaries of the texts and of the labels of a data set.

    Raises:
        ValueError: if its texts are not bytes.
    """
    from fairseq.data import Dictionary

    texts, labels = (Dictionary.load(str(path)) for path in dictionary_files(folder))
    others = sorted(set(own_symbols(texts)) - set(BYTE_SYMBOLS))
    if others:
        raise ValueError(f"{folder}: its texts are not bytes: they contain {others[0]!r}")
    return texts, labels


def dictionary_files(folder: Path) -> Tuple[Path, Path]:
    """Return the paths of the dictionaries of the texts and of the labels of a data set."""
    return folder / SOURCES[0] / "dict.txt", folder / LABELS / "dict.txt"


def _save(dictionary: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    dictionary.save(str(folder / "dict.txt"))


class _Builder:
    """Writer of one split of one folder."""

    def __init__(self, folder: Path, split: str, vocabulary: int) -> None:
        from fairseq.data import indexed_dataset

        self._prefix = str(folder / split)
        path = indexed_dataset.data_file_path(self._prefix)
        self._builder = indexed_dataset.make_builder(path, impl="mmap", vocab_size=vocabulary)
        self._index = indexed_dataset.index_file_path(self._prefix)

    def add(self, tokens: np.ndarray, eos: int) -> None:
        self._builder.add_item(torch.from_numpy(np.append(tokens, eos)))

    def finish(self) -> None:
        self._builder.finalize(self._index)


def _check(folder: Path, split: str, dictionary: Any, size: int) -> Dict[str, int]:
    """Read the split back; a difference is a bug or an error of the disk."""
    counts, problems = binarised_counts(folder, split, dictionary)
    if not problems and counts["lines"] != size:
        problems = [f"{split}: expected {size} examples, found {counts['lines']}"]
    if problems:
        raise OSError(f"{folder} was not written correctly: {'; '.join(problems)}")
    return {"tokens": counts["tokens"], "unknown": counts["unknown"]}


def byte_note(length: int, end: bool = False) -> List[str]:
    """Return the note on byte texts in card.json; ``end``: the last bytes of the texts were kept."""
    which = "last" if end else "first"
    return [f"UTF-8 bytes as symbols (decimal numbers), the {which} {length} of each text, and </s>"]
