"""Sequences with a label at some of their positions: associative recall, state tracking, a needle in a byte text.

Each generator draws ``count`` sequences of one length; tokens and labels are indices of its own names of tokens.
"""

from typing import List, NamedTuple, Sequence

import numpy as np

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
