"""Recall, state tracking, needle: each label follows from the tokens before it, and from no others."""

from pathlib import Path
from typing import Dict, Tuple

import numpy as np
import pytest
from fairseq.data import Dictionary, data_utils

from fairseq_mega.lab.prepare.generators.labelled import (
    UNSCORED,
    Labelled,
    needle,
    needle_names,
    recall,
    recall_names,
    tracking,
    tracking_names,
)
from tests.support.prepare_runs import prepare, source_of

PAIRS, SYMBOLS, MODULI = (4, 8), 16, (2, 5)


def draw(seed: int = 1) -> Dict[str, Tuple[Labelled, list]]:
    random = np.random.default_rng(seed)
    return {
        "recall": (recall(random, 50, 64, PAIRS, SYMBOLS), recall_names(SYMBOLS)),
        "tracking": (tracking(random, 50, 40, MODULI), tracking_names(MODULI)),
        "needle": (needle(random, 50, 100), needle_names()),
    }


def spelt(drawn: Labelled, names: list) -> list:
    """The sequences as lists of names, each with the labels of its positions, None where unscored."""
    return [
        ([names[token] for token in row], [None if label == UNSCORED else names[label] for label in labels])
        for row, labels in zip(drawn.tokens, drawn.labels)
    ]


def test_recall() -> None:
    """A query asks for a pair before it, a pair has no label, and sequences have 4 or 8 pairs of different keys."""
    counts = set()
    for tokens, labels in spelt(*draw()["recall"]):
        known: Dict[str, str] = {}
        for key, value, asked, behind in zip(tokens[::2], tokens[1::2], labels[::2], labels[1::2]):
            assert behind is None and key.startswith("k")
            if value == ".":
                assert asked == known[key]
            else:
                assert asked is None and key not in known and value.startswith("v")
                known[key] = value
        counts.add(len(known))
    assert counts == set(PAIRS)


def test_tracking() -> None:
    moduli = set()
    for tokens, labels in spelt(*draw()["tracking"]):
        (modulus,) = {int(name.partition(":")[0]) for name in tokens + labels}
        sums = np.cumsum([int(token.partition(":")[2]) for token in tokens]) % modulus
        assert labels == [f"{modulus}:{value}" for value in sums]
        moduli.add(modulus)
    assert moduli == set(MODULI)


def test_needle() -> None:
    places = set()
    for tokens, labels in spelt(*draw()["needle"]):
        text = "".join(tokens)
        begin, question = text.index("#"), text.rindex("#")
        assert question == len(text) - 4 and begin + 5 <= question
        secret = text[begin + 1 : begin + 5]
        assert secret.isdigit() and text[question + 1 :] == secret[:3]
        assert labels[question:] == list(secret) and labels[:question] == [None] * question
        assert sum(letter.isdigit() for letter in text) == 7
        places.add(begin)
    assert len(places) > 30


@pytest.mark.parametrize("name", ["recall", "needle"])
def test_the_source_tells_the_label(name: str) -> None:
    drawn, _ = draw()[name]
    scored = drawn.labels != UNSCORED
    told = np.take_along_axis(drawn.tokens, drawn.source, axis=1)
    assert (told == drawn.labels)[scored].all() and (drawn.source < np.arange(told.shape[1]))[scored].all()
    borders = drawn.borders(16)
    same = drawn.source // 16 == np.arange(told.shape[1]) // 16
    assert ((borders == 0) == same)[scored].all() and borders[scored].max() == (told.shape[1] - 1) // 16
    assert (drawn.only(borders == 0).labels != UNSCORED).sum() == (scored & same).sum()


def test_a_seed_stands_for_its_sequences() -> None:
    for name, (drawn, _) in draw().items():
        assert all(map(np.array_equal, drawn, draw()[name][0])), name
        assert not np.array_equal(drawn.tokens, draw(2)[name][0].tokens), name


def test_the_files(tmp_path: Path) -> None:
    """Splits are different sequences; those by borders share the scored positions of the test among them."""
    prepare("recall", "--count", 30, "--length", 64, "--pairs", "4,8", "--out", tmp_path / "out").succeeded()
    data, counts = tmp_path / "out" / "data-bin", source_of(tmp_path / "out")["splits"]
    dictionary = Dictionary.load(str(data / "dict.txt"))
    read = {
        path.stem: data_utils.load_indexed_dataset(str(path.with_suffix("")), dictionary) for path in data.glob("*.idx")
    }
    texts = {split: "".join(dictionary.string(row) for row in read[split]) for split in ("train", "valid", "test")}
    assert len(set(texts.values())) == 3
    borders = [counts[f"borders-{number}"]["scored"] for number in range(4)]
    assert min(borders) > 0 and sum(borders) == counts["test"]["scored"]
    for split in counts:
        for tokens, labels in zip(read[split], read[f"{split}.labels"]):
            assert len(tokens) == len(labels) and min(tokens) > dictionary.unk()
            assert all(dictionary[label].startswith("v") for label in labels if label != dictionary.pad())


def test_longer_sequences_are_scored_by_place(tmp_path: Path) -> None:
    prepare("tracking", "--count", 10, "--length", 32, "--moduli", "3", "--out", tmp_path / "out").succeeded()
    counts = source_of(tmp_path / "out")["splits"]
    assert {name: one["scored"] for name, one in counts.items() if name.startswith("modulus3")} == {
        f"modulus3-{end}": 10 * end // 2 for end in (4, 8, 16, 32, 64, 128, 256)
    }
    data = tmp_path / "out" / "data-bin"
    dictionary = Dictionary.load(str(data / "dict.txt"))
    for labels in data_utils.load_indexed_dataset(str(data / "modulus3-64.labels"), dictionary):
        assert np.flatnonzero(np.array(labels) != dictionary.pad()).tolist() == list(range(32, 64))
