"""Sequences with a label at some of their positions: associative recall, state tracking, a needle in a byte text.

Each generator draws ``count`` sequences of one length; tokens and labels are indices of its own names of tokens.
``data-bin`` contains the tokens of each split as fairseq-preprocess writes them, and their labels as SPLIT.labels.
"""

import argparse
from typing import Any, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as np
import torch

from fairseq_mega.data.labelled_tokens import LABELS
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.layouts import DATA_BIN, LABELLED
from fairseq_mega.lab.prepare.options import number_option, option, seed
from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.prepare.work_folder import WorkFolder

UNSCORED = -1  # label of a position where nothing is to be predicted
STEPS = 2  # tokens of a pair or a query of the recall
LETTERS, DECIMALS, MARK = "abcdefghijklmnopqrstuvwxyz ", "0123456789", "#"
WORDS, DIGITS = 200, 4  # of the text around the needle, and of the needle


class Labelled(NamedTuple):
    """Sequences (n, L) of tokens and of labels, UNSCORED for the most part, and the positions of what tells a label."""

    tokens: np.ndarray
    labels: np.ndarray
    source: np.ndarray

    def only(self, scored: np.ndarray) -> "Labelled":
        """Return the same sequences, scored only where ``scored``, (n, L) or (L,), is true."""
        return self._replace(labels=np.where(scored, self.labels, UNSCORED))

    def borders(self, chunk: int) -> np.ndarray:
        """Return the number of borders of chunks between what tells a label and the label, (n, L)."""
        return np.arange(self.tokens.shape[1]) // chunk - self.source // chunk


def unlabelled(tokens: np.ndarray) -> Labelled:
    """Return sequences without a label, for a generator to fill."""
    return Labelled(tokens, np.full_like(tokens, UNSCORED), np.zeros_like(tokens))


def recall_names(symbols: int) -> List[str]:
    """Return the filler, the keys and the values."""
    return [".", *(f"{kind}{number}" for kind in "kv" for number in range(symbols))]


def recall(random: np.random.Generator, count: int, length: int, pairs: Sequence[int], symbols: int) -> Labelled:
    """Draw multi-query associative recall: ``k3 v8 k5 v1 k3 . k3 . k5 .`` has the label v8 at the later k3.

    Each sequence has one of the numbers of pairs of different keys, at random places behind the first. A query asks for
    any key before it; the answer is not shown. Pairs and queries begin at even positions.

    Source: Arora et al. (2024), "Zoology", section 4.1; there all pairs open the sequence, and a key is asked for once.
    """
    most, shape = max(pairs), (count, length // STEPS)
    order = random.random(shape)
    order[:, 0] = -1
    is_pair = order.argsort(axis=1).argsort(axis=1) < random.choice(pairs, (count, 1))
    shown = is_pair.cumsum(axis=1)
    pair = np.where(is_pair, shown - 1, (random.random(shape) * shown).astype(np.int64))
    keys = random.permuted(np.tile(np.arange(symbols), (count, 1)), axis=1)[:, :most]
    values, places = random.integers(symbols, size=(count, most)), (~is_pair).argsort(axis=1, kind="stable")
    keys, values, places = (np.take_along_axis(part, pair, axis=1) for part in (1 + keys, 1 + symbols + values, places))
    drawn = unlabelled(np.zeros((count, length), dtype=np.int64))
    drawn.tokens[:, ::STEPS], drawn.tokens[:, 1::STEPS] = keys, np.where(is_pair, values, 0)
    drawn.labels[:, ::STEPS], drawn.source[:, ::STEPS] = np.where(is_pair, UNSCORED, values), STEPS * places + 1
    return drawn


def tracking_names(moduli: Sequence[int]) -> List[str]:
    """Return the digits of each modulus."""
    return [f"{modulus}:{digit}" for modulus in moduli for digit in range(modulus)]


def tracking(random: np.random.Generator, count: int, length: int, moduli: Sequence[int]) -> Labelled:
    """Draw running sums: each sequence has digits of one modulus, and at each position the label is the sum up to it.

    ``2:1 2:0 2:1`` has the labels ``2:1 2:1 2:0``: modulus 2 is the parity.
    """
    kind = random.integers(len(moduli), size=(count, 1))
    first, modulus = (np.array(values)[kind] for values in (np.cumsum([0, *moduli[:-1]]), moduli))
    digits = random.integers(modulus, size=(count, length))
    return Labelled(
        first + digits,
        first + digits.cumsum(axis=1) % modulus,
        np.broadcast_to(np.arange(length), digits.shape),
    )


def needle_names() -> List[str]:
    """Return the characters of the texts; fairseq reads a space as the end of a name."""
    return [*(LETTERS + DECIMALS + MARK).replace(" ", "_")]


def needle(random: np.random.Generator, count: int, length: int) -> Labelled:
    """Draw texts of invented words, a byte a token, with a needle such as ``#7302`` and at the end ``#730``.

    The label of the last ``#`` and of each digit behind it is the next digit of the needle.
    """
    fixed = np.random.default_rng(0)  # all sets have the same words
    words = ["".join(fixed.choice(list(LETTERS[:-1]), fixed.integers(2, 9))) for _ in range(WORDS)]
    share = 1 / np.arange(1, WORDS + 1)  # of a word, as in real texts
    texts = random.choice(words, (count, length // 3 + 1), p=share / share.sum())  # two letters and a space at least
    drawn = unlabelled(np.array([[LETTERS.index(letter) for letter in " ".join(text)[:length]] for text in texts]))
    digits, mark = len(LETTERS) + random.integers(10, size=(count, DIGITS)), len(LETTERS + DECIMALS)
    end = length - DIGITS + np.arange(DIGITS)  # of the question
    begin = random.integers(end[0] - DIGITS, size=(count, 1)) + np.arange(DIGITS + 1)  # of the needle
    for place in (begin, np.broadcast_to(end, digits.shape)):
        np.put_along_axis(drawn.tokens, place, np.c_[np.full(count, mark), digits][:, : place.shape[1]], axis=1)
    drawn.labels[:, end], drawn.source[:, end] = digits, begin[:, 1:]
    return drawn


# --- The data sets

Splits = Iterator[Tuple[str, Labelled]]
HELD_OUT = 1000  # most sequences of each split but train
LONGER = 8  # sequences of the training's length that the longest one of state tracking has


def write(work: WorkFolder, names: List[str], splits: Splits) -> Report:
    """Write the splits of a data set of tokens with these names."""
    from fairseq.data import Dictionary, indexed_dataset

    dictionary, counts, folder = Dictionary(), {}, work.output / DATA_BIN
    first = len(dictionary)  # token behind the special ones
    for name in names:
        dictionary.add_symbol(name)
    folder.mkdir()
    dictionary.save(str(folder / "dict.txt"))
    for split, drawn in splits:
        scored = drawn.labels != UNSCORED
        labels = np.where(scored, first + drawn.labels, dictionary.pad())
        for path, part in ((folder / split, first + drawn.tokens), (folder / f"{split}{LABELS}", labels)):
            builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", vocab_size=len(dictionary))
            for row in torch.from_numpy(part):
                builder.add_item(row)
            builder.finalize(f"{path}.idx")
        counts[split] = {"examples": len(scored), "scored": int(scored.sum())}
    return Report("generated by fairseq_mega", counts)


def drawn_sets(args: argparse.Namespace) -> Iterator[Tuple[np.random.Generator, int]]:
    """Yield the random numbers and the count of the sequences of train, and of each set drawn after it."""
    count = args.count
    for source in np.random.SeedSequence(args.seed).spawn(100):
        yield np.random.default_rng(source), count
        count = min(args.count, HELD_OUT)


def by_borders(test: Labelled, chunk: int) -> Splits:
    """Yield the test set scored by the number of borders of chunks between what tells a label and the label."""
    crossed = test.borders(chunk)
    for number in np.unique(crossed[test.labels != UNSCORED]):
        yield f"borders-{number}", test.only(crossed == number)


def recall_splits(args: argparse.Namespace) -> Splits:
    """Draw the splits of the recall, then those of each number of borders, and of fewer to more pairs than trained."""
    sets = drawn_sets(args)
    for split in SPLITS:
        drawn = recall(*next(sets), args.length, args.pairs, args.symbols)
        yield split, drawn
    yield from by_borders(drawn, args.chunk)
    for pairs in sorted({min(args.pairs) // 2, *args.pairs, 2 * max(args.pairs)}):
        yield f"pairs-{pairs}", recall(*next(sets), args.length, [pairs], args.symbols)


def tracking_splits(args: argparse.Namespace) -> Splits:
    """Draw the splits of state tracking, then of each modulus longer sequences, scored from half a position to it."""
    sets = drawn_sets(args)
    for split in SPLITS:
        yield split, tracking(*next(sets), args.length, args.moduli)
    place = np.arange(LONGER * args.length)
    for modulus in args.moduli:
        drawn = tracking(*next(sets), len(place), [modulus])
        drawn = shifted(drawn, tracking_names(args.moduli).index(f"{modulus}:0"))
        end = len(place)
        while end >= 4:
            yield f"modulus{modulus}-{end}", drawn.only((end // 2 <= place) & (place < end))
            end //= 2


def shifted(drawn: Labelled, by: int) -> Labelled:
    """Return sequences of one modulus with the tokens that they have among those of several."""
    return drawn._replace(tokens=drawn.tokens + by, labels=drawn.labels + by)


def needle_splits(args: argparse.Namespace) -> Splits:
    """Draw the splits of the needle, then those of each number of borders."""
    sets = drawn_sets(args)
    for split in SPLITS:
        drawn = needle(*next(sets), args.length)
        yield split, drawn
    yield from by_borders(drawn, args.chunk)


def numbers(text: str) -> List[int]:
    """Read whole numbers separated by commas."""
    return list(map(int, text.split(",")))


def _dataset(name: str, details: str, length: int, count: int, make: Any, *options: Any) -> Dataset:
    """Return a data set, given its lengths and counts, its making, and its own options."""
    return Dataset(
        name,
        details,
        (
            number_option("--count", count, "sequences to train on", 10),
            number_option("--length", length, "tokens of a sequence", 32),
            *options,
            seed("sequences"),
        ),
        make,
        layout=LABELLED,
    )


CHUNK = number_option("--chunk", 16, "test sets are divided by the number of borders of chunks of N tokens")
DATASETS = (
    _dataset(
        "recall",
        "Pairs of keys and values, and keys whose value is the label: 'k3 v8 k5 v1 k3 .' has v8 at the second k3.",
        64,
        64_000,
        lambda args, work: write(work, recall_names(args.symbols), recall_splits(args)),
        option("--pairs", type=numbers, default=[4, 8], metavar="N,N", help="pairs of a sequence (default: 4,8)"),
        number_option("--symbols", 16, "number of keys, and of values", 8),
        CHUNK,
    ),
    _dataset(
        "tracking",
        "Digits and, at each position, the label of their sum up to it modulo M; M = 2 is the parity.",
        64,
        64_000,
        lambda args, work: write(work, tracking_names(args.moduli), tracking_splits(args)),
        option("--moduli", type=numbers, default=[2, 5], metavar="M,M", help="moduli, one a sequence (default: 2,5)"),
    ),
    _dataset(
        "needle",
        "Texts of invented words as bytes, with a number somewhere that is asked for at the end.",
        256,
        50_000,
        lambda args, work: write(work, needle_names(), needle_splits(args)),
        CHUNK,
    ),
)
