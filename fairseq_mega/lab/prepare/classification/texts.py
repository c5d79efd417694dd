"""Texts with labels, binarised as by fairseq-preprocess --only-source: ListOps, Text and Retrieval of the Long Range
Arena (Tay et al., 2021).

``src-bin`` contains the texts (``src1-bin`` the second texts of pairs), ``label-bin`` the labels. Each has train, valid
and test as ``.bin`` and ``.idx``, and dict.txt: tokens by falling frequency in train, ties in their order as strings.
The two texts of a pair share one dictionary.
"""

import argparse
import re
from collections import Counter
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.data.text_units import own_tokens
from fairseq_mega.lab.prepare.archives import (
    RELEASED,
    Archive,
    Part,
    obtain,
    read_lines,
    read_table,
    read_tar,
    released_files,
)
from fairseq_mega.lab.prepare.dataset import Dataset, Report, Scored
from fairseq_mega.lab.prepare.download import records_of
from fairseq_mega.lab.prepare.generators.listops import TOKENS, ListOpsRules, generate_listops, model_input
from fairseq_mega.lab.prepare.layouts import PAIRS_OF_TEXTS, TEXTS
from fairseq_mega.lab.prepare.options import (
    KEPT_LENGTH,
    LIMIT,
    SEED,
    WORKERS,
    archive,
    file_option,
    kept,
    note_on_limit,
    number_option,
    seed,
    switch,
)
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder

BYTE_TOKENS = tuple(map(str, range(256)))
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


def byte_split(rows: Sequence[Tuple[bytes, str]], length: int) -> TextSplit:
    """Return a split of texts with their labels, each text cut to its first ``length`` bytes."""
    return TextSplit(len(rows), lambda: (Example((byte_text(text, length),), label) for text, label in rows))


def byte_note(length: int, end: bool = False) -> List[str]:
    """Return the note on byte texts in card.json; ``end``: the last bytes of the texts were kept."""
    which = "last" if end else "first"
    return [f"UTF-8 bytes as symbols (decimal numbers), the {which} {length} of each text, and </s>"]


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
    for texts, label in _counted("train, counting the tokens", splits["train"]):
        sides = len(texts)
        label_counts[label] += 1
        for text in texts:
            counts += np.bincount(text, minlength=len(vocabulary))
    if like is None:
        found_tokens = {token: count for token, count in zip(vocabulary, counts.tolist()) if count}
        like = _dictionary(found_tokens), _dictionary(label_counts)
    tokens_of, labels_of = like
    token_ids = np.array([tokens_of.index(token) for token in vocabulary])
    for name, dictionary in [*((name, tokens_of) for name in SOURCES[:sides]), (LABELS, labels_of)]:
        (folder / name).mkdir(parents=True)
        dictionary.save(str(folder / name / "dict.txt"))
    names, statistics = [*SOURCES[:sides], LABELS], {}
    for split, part in splits.items():
        builders = {name: _builder(folder / name / split, like[name == LABELS]) for name in names}
        by_side = {name: {"tokens": 0, "unknown": 0} for name in names[:-1]}
        found: Counter = Counter()
        for texts, label in _counted(split, part):
            for (name, counted), text in zip(by_side.items(), texts):
                tokens = token_ids[text]
                builders[name].add_item(torch.from_numpy(np.append(tokens, tokens_of.eos())))
                counted["tokens"] += len(tokens) + 1
                counted["unknown"] += int((tokens == tokens_of.unk()).sum())
            builders[LABELS].add_item(torch.tensor([labels_of.index(label), labels_of.eos()]))
            found[label] += 1
        for name, builder in builders.items():
            builder.finalize(str(folder / name / f"{split}.idx"))
        statistics[split] = {"examples": part.size, "labels": dict(sorted(found.items())), **by_side}
        tokens, unknown = (sum(side[key] for side in by_side.values()) for key in ("tokens", "unknown"))
        lost = f"; {unknown:,} of all are <unk>, tokens that train lacks" if unknown else ""
        print_line(f"{split}: {part.size} examples, {tokens:,} tokens with </s>{lost}")
    return statistics


def _counted(name: str, split: TextSplit) -> Iterable[Example]:
    return follow(split.examples(), name, "examples", split.size)


def _dictionary(counts: Dict[str, int]) -> Any:
    from fairseq.data import Dictionary

    dictionary = Dictionary()
    for token, count in counts.items():
        dictionary.add_symbol(token, n=count)
    dictionary.finalize()
    return dictionary


def dictionaries_of(folder: Path) -> Tuple[Any, Any]:
    """Return the dictionaries of the texts and of the labels of a data set; raise ValueError for texts of words."""
    from fairseq.data import Dictionary

    texts, labels = (Dictionary.load(str(folder / name / "dict.txt")) for name in (SOURCES[0], LABELS))
    others = sorted(set(own_tokens(texts)) - set(BYTE_TOKENS))
    if others:
        raise ValueError(f"{folder}: its texts are not bytes: they contain {others[0]!r}")
    return texts, labels


def _builder(place: Path, dictionary: Any) -> Any:
    """Return fairseq's writer of one split of one folder, whose name is without an ending."""
    from fairseq.data import indexed_dataset

    path = indexed_dataset.data_file_path(str(place))
    return indexed_dataset.make_builder(path, impl="mmap", vocab_size=len(dictionary))


# --- ListOps: nested lists of digits and operators, generated by the rules of the benchmark

TREES = Part("listops-1000", {"train": "basic_train.tsv", "valid": "basic_val.tsv", "test": "basic_test.tsv"})
DIGITS = TOKENS[:10]
LEAST_TREES = 50  # 2 % of it is one tree
_INDICES = {token: index for index, token in enumerate(TOKENS)}

LISTOPS = """\
Without --released trees are generated: 96, 2 and 2 % are train, valid and test. The benchmark has 100000
trees of more than 500 and fewer than 2000 tokens: 200 MB, one to three minutes on 2 cores, 1.2 GB of memory. Its rules
fix no seed; card.json has the seed of this run. The model reads digits, operators and X (for the closing
bracket) only; fairseq-mega-classify reads expressions with ] and parentheses in this form. Classes 0 to 9; a class
number in training is the label's rank in label-bin/dict.txt."""


def tree(source: str, value: str, where: object = "") -> Example:
    """Return a tree in its parenthesised form as indices of TOKENS.

    Source: MEGA (Ma et al., ICLR 2023), its processed data. Raises ValueError for other tokens or values.
    """
    tokens = model_input(source)
    if value not in DIGITS or not set(tokens) <= set(TOKENS):
        raise ValueError(f"{where}: {value!r} is no digit, or a token is none of {' '.join(TOKENS)}")
    return Example((np.array([_INDICES[token] for token in tokens], dtype=np.uint8),), value)


def make_listops(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Generate the trees, or read the released ones, and write them."""
    inputs = {}
    if not args.released:
        rules = ListOpsRules(min_length=args.min_length, max_length=args.max_length)
        pairs = follow(generate_listops(args.count, args.seed, rules, args.workers), "generating", "trees", args.count)
        trees = [tree(source, str(target)) for source, target in pairs]
        print_line(f"{len(trees)} trees generated with seed {args.seed}")
        train, valid = args.count * 96 // 100, args.count * 2 // 100
        parts = {"train": trees[:train], "valid": trees[train : train + valid], "test": trees[train + valid :]}
        origin = f"generated by the rules of Long Range Arena with seed {args.seed}"
    else:
        files = TREES.paths(released_files(args, work, TREES))
        inputs = records_of(files.values())
        parts = {
            split: [
                tree(source.decode(), value.decode(), f"{path}: line {number}")
                for number, (source, value) in read_table(path, 2)
                if number > 1  # below the names of the columns
            ]
            for split, path in files.items()
        }
        origin = "the released files of Long Range Arena"
    splits = {split: TextSplit(len(part), part.__iter__) for split, part in parts.items()}
    return Report(origin, write_text_task(work.output, splits, TOKENS, DIGITS), inputs)


# --- Text: film reviews of IMDb as bytes, good or bad

IMDB_ARCHIVE = Archive(
    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", {"md5": "7c2ac02c03563afcf9b574c7e56c153a"}
)
_REVIEW = re.compile(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt")
Review = Tuple[bytes, str]
REVIEWS = "the reviews as a table instead, plain or gzip: label (0, 1) TAB rating TAB text"

IMDB = """\
25000 reviews to train on and 25000 to test on; the benchmark validates with the test reviews, so valid and test are the
same. Download 84 MB, result 200 MB, a minute on one core. Label 0 is bad, 1 is good. Every UTF-8 byte is a token;
the first 4000 (--length) of a review are kept, with --end the last."""


def _reviews_of_archive(path: Path) -> Dict[str, List[Review]]:
    found: Dict[str, List[Tuple[str, bytes]]] = {"train": [], "test": []}
    for name, text in read_tar(path, lambda name: _REVIEW.fullmatch(name) is not None):
        found[name.split("/")[1]].append((name, text))
    return {
        part: [(text, "1" if "/pos/" in name else "0") for name, text in sorted(reviews)]
        for part, reviews in found.items()
    }


def _reviews_of_table(path: Path) -> List[Review]:
    reviews = []
    for number, (label, _, text) in read_table(path, 3):
        if label not in (b"0", b"1"):
            raise ValueError(f"{path}: line {number} has the label {label!r}, not 0 or 1")
        reviews.append((text, label.decode()))
    return reviews


def make_imdb(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the reviews and write them."""
    files = {"train": args.tsv_train, "test": args.tsv_test}
    if None in files.values() and any(files.values()):
        raise ValueError("--tsv-train and --tsv-test are passed together")
    if any(files.values()):
        inputs = records_of(files.values())
        parts = {part: _reviews_of_table(path) for part, path in files.items()}
        origin = "tables of reviews (--tsv-train, --tsv-test)"
    else:
        path, inputs = obtain(IMDB_ARCHIVE, args.archive, work.raw)
        parts = _reviews_of_archive(path)
        origin = f"the Large Movie Review Dataset v1.0, {IMDB_ARCHIVE.url}"
    notes = ["valid and test are the same reviews: the benchmark has no validation part"]
    validated_on = "test"
    if args.held_out:
        order = np.random.default_rng(SEED).permutation(len(parts["train"]))
        held_out = min(args.held_out, len(order) // 4) if args.smoke else args.held_out
        train, validated_on = parts["train"], "valid"
        parts["train"] = [train[number] for number in sorted(order[held_out:])]
        parts["valid"] = [train[number] for number in sorted(order[:held_out])]
        notes = [f"valid: {held_out} reviews of train, drawn with seed 42, and no longer in it"]
    splits = {}
    for split, part in (("train", "train"), ("valid", validated_on), ("test", "test")):
        rows = [parts[part][row] for row in kept(split, len(parts[part]), args.limit, drawn_as=part)]
        beginning = -args.length if args.end else 0
        splits[split] = byte_split([(text[beginning:], label) for text, label in rows], args.length)
    statistics = write_text_task(work.output, splits, BYTE_TOKENS, ("0", "1"))
    return Report(origin, statistics, inputs, [*notes, *byte_note(args.length, args.end), *note_on_limit(args.limit)])


# --- Retrieval: pairs of papers of the ACL Anthology Network, linked by a citation or not

PAIRS = Part(
    "tsv_data",
    {"train": "new_aan_pairs.train.tsv", "valid": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"},
)
PUBLISHED = {"train": 147_086, "valid": 18_090, "test": 17_437}
LINKED = {b"0": "0", b"0.0": "0", b"1": "1", b"1.0": "1"}

AAN = f"""\
{PUBLISHED["train"]}, {PUBLISHED["valid"]} and {PUBLISHED["test"]} pairs from the folder tsv_data of
https://storage.googleapis.com/long-range-arena/lra_release.gz (8 GB), whose checksum is not published.
Every byte of a text is a token; the first 4000 (--length) are kept. The first text of a pair is written to src-bin,
the second to src1-bin. 3 GB, about ten minutes on one core. Label 1: one paper cites the other."""


def pairs_of(path: Path, size: int, length: int) -> TextSplit:
    """Return the pairs of a table, which are read line by line, as some machines have too little memory."""

    def examples() -> Iterator[Example]:
        for number, (label, _, _, first, second) in read_table(path, 5):
            if label not in LINKED:
                raise ValueError(f"{path}: line {number} has the label {label!r}")
            yield Example((byte_text(first, length), byte_text(second, length)), LINKED[label])

    return TextSplit(size, examples)


def make_aan(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the tables twice and write the pairs."""
    if not args.released:
        raise ValueError("give --released: the archive has 8 GB, and is fetched where --archives lacks it")
    paths, splits = PAIRS.paths(released_files(args, work, PAIRS)), {}
    notes: List[str] = ["the texts are read as printed in the tables, b'...' included"]
    for split, path in paths.items():
        size = sum(1 for _ in read_lines(path))  # bytes after unpacking
        if size != PUBLISHED[split]:
            notes.append(f"{path.name} has {size} pairs; {PUBLISHED[split]} are commonly reported")
        splits[split] = pairs_of(path, size, args.length)
    statistics = write_text_task(work.output, splits, BYTE_TOKENS, ("0", "1"))
    notes += byte_note(args.length)
    return Report("the tables of Long Range Arena", statistics, records_of(paths.values()), notes)


DATASETS = (
    Dataset(
        "listops",
        LISTOPS,
        (
            number_option("--count", 100_000, "number of trees", LEAST_TREES),
            seed("trees"),
            number_option("--min-length", 500, "trees have more tokens", 0),
            number_option("--max-length", 2000, "trees have fewer tokens"),
            WORKERS,
            *RELEASED,
        ),
        make_listops,
        layout=TEXTS,
        scored=Scored(2_000, 1_050),  # mean of 2,000 generated trees
    ),
    Dataset(
        "imdb",
        IMDB,
        (
            archive(IMDB_ARCHIVE.name),
            *(file_option(f"--tsv-{part}", text=REVIEWS) for part in ("train", "test")),
            number_option("--held-out", 0, "hold N reviews of train out for valid; 0: valid is test", 0),
            KEPT_LENGTH,
            switch("--end", "keep the last bytes of each review, not the first"),
            LIMIT,
        ),
        make_imdb,
        layout=TEXTS,
        scored=Scored(25_000, 31_714_156 / 25_000),  # bytes of the test reviews, at most 4,000 of each, with </s>
    ),
    Dataset(
        "aan",
        AAN,
        (*RELEASED, KEPT_LENGTH),
        make_aan,
        layout=PAIRS_OF_TEXTS,
        fetched=False,
        scored=Scored(PUBLISHED["test"]),
    ),
)
