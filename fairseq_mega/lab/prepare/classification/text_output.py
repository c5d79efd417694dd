"""Texts with labels in the layout of the text tasks: binarised as by fairseq-preprocess --only-source.

``src-bin`` contains the texts (``src1-bin`` the second texts of pairs), ``label-bin`` the labels. Each has train, valid
and test as ``.bin`` and ``.idx``, and dict.txt: tokens by falling frequency in train, ties in their order as strings.
The two texts of a pair share one dictionary.
"""

from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.data.text_units import own_tokens
from fairseq_mega.lab.prepare.progress import Progress, print_line

BYTE_TOKENS = tuple(map(str, range(256)))
BYTES_SEEN = (50, 300)  # tokens of a dictionary of bytes: those that occur, and perhaps tokens that fill it up
SOURCES = ("src-bin", "src1-bin")
LABELS = "label-bin"


class Example(NamedTuple):
    """One text or two, each the indices of its tokens (length,), and the label."""

    texts: Tuple[np.ndarray, ...]
    label: str


class TextSplit(NamedTuple):
    """The examples of a split, which are read twice, and the number of examples."""

    size: int
    examples: Callable[[], Iterable[Example]]


def byte_text(text: bytes, length: int) -> np.ndarray:
    """Return the first ``length`` bytes of a text as indices of BYTE_TOKENS, (n,) uint8."""
    return np.frombuffer(text[:length], dtype=np.uint8)


def byte_split(rows: Sequence[Tuple[Tuple[bytes, ...], str]], length: int) -> TextSplit:
    """Return a split of texts with their labels, each text cut to its first ``length`` bytes."""

    def examples() -> Iterable[Example]:
        return (Example(tuple(byte_text(text, length) for text in texts), label) for texts, label in rows)

    return TextSplit(len(rows), examples)


def write_text_task(
    folder: Path,
    splits: Dict[str, TextSplit],
    vocabulary: Sequence[str],
    labels: Sequence[str],
    like: Optional[Tuple[Any, Any]] = None,
) -> Dict[str, Dict[str, Any]]:
    """Binarise all splits below ``folder`` and return the counts of each.

    As with fairseq-preprocess, a token that train lacks becomes ``<unk>``; a label does not.

    Args:
        vocabulary: the tokens, in the order of the indices in the texts.
        labels: all possible labels.
        like: dictionaries of texts and labels, used instead of those of train.
    """
    counts = np.zeros(len(vocabulary), dtype=np.int64)
    label_counts = dict.fromkeys(labels, 0)
    sides = 1
    for example in _counted("train, counting the tokens", splits["train"]):
        sides = len(example.texts)
        label_counts[example.label] += 1
        for text in example.texts:
            counts += np.bincount(text, minlength=len(vocabulary))
    if like is None:
        found_tokens = {token: count for token, count in zip(vocabulary, counts.tolist()) if count}
        like = _dictionary(found_tokens), _dictionary(label_counts)
    source_dictionary, label_dictionary = like
    token_ids = np.array([source_dictionary.index(token) for token in vocabulary])
    sources = SOURCES[:sides]
    for name in sources:
        _save(source_dictionary, folder / name)
    _save(label_dictionary, folder / LABELS)
    statistics = {}
    for split, texts in splits.items():
        builders = [_Builder(folder / name, split, source_dictionary) for name in sources]
        label_builder = _Builder(folder / LABELS, split, label_dictionary)
        found: Counter = Counter()
        for example in _counted(split, texts):
            for builder, text in zip(builders, example.texts):
                builder.add(token_ids[text])
            label_builder.add(np.array([label_dictionary.index(example.label)]))
            found[example.label] += 1
        for builder in [*builders, label_builder]:
            builder.finish()
        counts_of_sides = {name: builder.counts for name, builder in zip(sources, builders)}
        statistics[split] = {"examples": texts.size, "labels": dict(sorted(found.items())), **counts_of_sides}
        tokens, unknown = (sum(side[key] for side in counts_of_sides.values()) for key in ("tokens", "unknown"))
        lost = f"; {unknown:,} of all are <unk>, tokens that train lacks" if unknown else ""
        print_line(f"{split}: {texts.size} examples, {tokens:,} tokens with </s>{lost}")
    print_line(
        f"dictionaries: {len(source_dictionary)} tokens, {len(labels)} labels, the special ones included in the first"
    )
    return statistics


def _counted(name: str, split: TextSplit) -> Iterable[Example]:
    return Progress(name, "examples", split.size).follow(split.examples())


def _dictionary(counts: Dict[str, int]) -> Any:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for token, count in counts.items():
        dictionary.add_symbol(token, n=count)
    dictionary.finalize()
    return dictionary


def dictionaries_of(folder: Path) -> Tuple[Any, Any]:
    """Return the dictionaries of the texts and of the labels of a data set.

    Raises:
        ValueError: if its texts are not bytes.
    """
    from fairseq.data import Dictionary

    texts, labels = (Dictionary.load(str(folder / name / "dict.txt")) for name in (SOURCES[0], LABELS))
    others = sorted(set(own_tokens(texts)) - set(BYTE_TOKENS))
    if others:
        raise ValueError(f"{folder}: its texts are not bytes: they contain {others[0]!r}")
    return texts, labels


def _save(dictionary: Any, folder: Path) -> None:
    folder.mkdir(parents=True)
    dictionary.save(str(folder / "dict.txt"))


class _Builder:
    """Writer of one split of one folder; ``counts`` are those of its tokens, and of unknown ones."""

    def __init__(self, folder: Path, split: str, dictionary: Any) -> None:
        from fairseq.data import indexed_dataset

        self._dictionary = dictionary
        path = indexed_dataset.data_file_path(str(folder / split))
        self._builder = indexed_dataset.make_builder(path, impl="mmap", vocab_size=len(dictionary))
        self._index = indexed_dataset.index_file_path(str(folder / split))
        self.counts = {"tokens": 0, "unknown": 0}

    def add(self, tokens: np.ndarray) -> None:
        self._builder.add_item(torch.from_numpy(np.append(tokens, self._dictionary.eos())))
        self.counts["tokens"] += len(tokens) + 1
        self.counts["unknown"] += int((tokens == self._dictionary.unk()).sum())

    def finish(self) -> None:
        self._builder.finalize(self._index)


def byte_note(length: int, end: bool = False) -> List[str]:
    """Return the note on byte texts in card.json; ``end``: the last bytes of the texts were kept."""
    which = "last" if end else "first"
    return [f"UTF-8 bytes as symbols (decimal numbers), the {which} {length} of each text, and </s>"]
