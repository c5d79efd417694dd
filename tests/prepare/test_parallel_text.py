"""Cleaning, sentence pairing and splitting of parallel text, and reading and writing its files."""

from pathlib import Path
from typing import List, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.prepare.translation.parallel_text import (
    HELP_RULES,
    Corpus,
    Pair,
    leak_key,
    own_corpus,
    pair_sentences,
    read_pairs,
    rejection,
    remove_repeats,
    split_sentences,
    write_own_pairs,
    write_pairs,
)
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal, source_of


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("One ends. Two ends! Three?", ["One ends.", "Two ends!", "Three?"]),
        (
            'He said "Stop." Then it ended. (It did.) Yes.',
            ['He said "Stop."', "Then it ended.", "(It did.)", "Yes."],
        ),
        ("Öffnen Sie z. B. Writer bzw. Calc. Es geht.", ["Öffnen Sie z. B. Writer bzw. Calc.", "Es geht."]),
        ("Am 3. Oktober um 5.30 Uhr. Danach nicht.", ["Am 3. Oktober um 5.30 Uhr.", "Danach nicht."]),
        ("Save the file. txt is the ending.", ["Save the file. txt is the ending."]),
        ("Wait ... Then go on.", ["Wait ...", "Then go on."]),
    ],
)
def test_split_sentences(text: str, want: List[str]) -> None:
    assert split_sentences(text) == want


def test_sentences_are_paired_only_where_they_correspond() -> None:
    both = Pair("First it runs. Then it ends.", "Erst läuft es. Dann endet es.")
    assert pair_sentences(both) == [
        Pair("First it runs.", "Erst läuft es."),
        Pair("Then it ends.", "Dann endet es."),
    ]
    merged = Pair("First it runs. Then it ends.", "Erst läuft es, dann endet es.")
    assert pair_sentences(merged) == [merged]
    shifted = Pair(
        "Yes. " + "It is a long way to go from here until there is any end of it.",
        "Ja " + "das " * 20 + "ist. Ja.",
    )
    assert pair_sentences(shifted) == [shifted]


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ("Insert a table", "Tabelle einfügen", None),
        ("Insert a table", "", "empty side"),
        ("Insert a table", "Tabelle \ufffd", "broken characters"),
        ("The same text here", "The same text here", "not translated"),
        ("Insert table", "Tabelle einfügen", "too short"),
        ("word " * 151, "Wort " * 151, "too long"),
        ("one two three four five six", "eins", "lengths differ too much"),
        ("one two three four five", "eins", None),  # 5 <= 2.5 * 1 + 3
        ("=SUM(A1:A9) is 12345", "Das ist die Summe", "too few letters"),
    ],
)
def test_rules_of_the_help_text(source: str, target: str, want: str) -> None:
    assert rejection(Pair(source.strip(), target.strip()), HELP_RULES) == want


@given(st.lists(st.tuples(st.sampled_from(SPLITS), st.sampled_from("aAbcde"), st.sampled_from("uvw")), max_size=60))
def test_no_source_is_in_two_splits(rows: "list[tuple[str, str, str]]") -> None:
    corpus = Corpus()
    for split, source, target in rows:
        corpus.splits[split].append(Pair(source, target))
    before = {split: list(rows) for split, rows in corpus.splits.items()}
    remove_repeats(corpus)
    keys = {split: [leak_key(p.source) for p in rows] for split, rows in corpus.splits.items()}
    assert not set(keys["train"]) & set(keys["test"])
    assert not set(keys["train"]) & set(keys["valid"])
    assert not set(keys["test"]) & set(keys["valid"])
    for split in ("valid", "test"):
        assert len(set(keys[split])) == len(keys[split])
    assert set(corpus.splits["train"]) == set(before["train"])
    assert len(set(corpus.splits["train"])) == len(corpus.splits["train"])
    kept = sum(len(rows) for rows in corpus.splits.values())
    assert kept + sum(corpus.dropped.values()) == len(rows)


def test_odd_lines_keep_the_pairing(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_bytes("\ufeffone\r\n\r\nthr\u2028ee\x0b\x85\nfour".encode())
    (tmp_path / "t.de").write_bytes(b"eins\n\n\tdrei\n4\n")
    assert read_pairs(str(tmp_path / "t"), "en", "de") == [
        Pair("one", "eins"),
        Pair("", ""),
        Pair("thr ee", "drei"),
        Pair("four", "4"),
    ]
    (tmp_path / "t.de").write_bytes(b"eins\n\n\tdrei\n")
    with pytest.raises(ValueError, match="t.en.*4.*3"):  # else all later pairs would be wrong ones
        read_pairs(str(tmp_path / "t"), "en", "de")


def rows(count: int, offset: int = 0) -> List[Pair]:
    return [Pair(f"source {n}", f"Ziel {n}") for n in range(offset, offset + count)]


def test_own_text_is_held_out_from_the_end() -> None:
    corpus = own_corpus([*rows(200), Pair("", "leer")], None, None)
    assert corpus.splits == {"train": rows(180), "valid": rows(10, 180), "test": rows(10, 190)}
    assert corpus.dropped == {"empty side": 1}
    assert len(own_corpus(rows(30000), None, None).splits["test"]) == 1000


@pytest.mark.parametrize("own", [(), ("valid",)])
def test_a_limit_leaves_splits_of_ones_own_as_they_are(own: Tuple[str, ...], tmp_path: Path) -> None:
    write_pairs(str(tmp_path / "t"), "en", "de", rows(5000))
    write_pairs(str(tmp_path / "given"), "en", "de", rows(60, 5000))
    prefixes = {name: str(tmp_path / ("t" if name == "train" else "given")) for name in ("train", *own)}
    write_own_pairs({name: prefixes.get(name) for name in SPLITS}, tmp_path / "out", ("en", "de"), limit=200)
    lengths = {name: len(read_pairs(str(tmp_path / "out" / name), "en", "de")) for name in SPLITS}
    assert lengths == {"train": 200, **{name: 60 if name in own else 10 for name in ("valid", "test")}}


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_data_of_ones_own_pairs(tmp_path: Path) -> None:
    """Bad input is refused without a traceback; other text in the same files is noticed."""
    write_pairs(str(tmp_path / "t"), "en", "de", rows(10))
    run = ("own-pairs", "--text", tmp_path / "t", "--out", tmp_path / "out", "--source-lang", "en", "--workers", 1)
    assert "error: too few train pairs: 10 left" in refusal(*run, "--target-lang", "de")
    assert "t.fr" in refusal(*run, "--target-lang", "fr") and not (tmp_path / "out").exists()
    write_pairs(str(tmp_path / "t"), "en", "de", rows(300))
    output = prepare(*run, "--target-lang", "de", "--vocab-size", 100).succeeded().output
    assert "sentence pairs: train 270, valid 15, test 15" in output
    names = ("data-bin/train.en-de.de.bin", "data-bin/subwords.model", "pieces/joint.model", "text/test.en")
    assert all((tmp_path / "out" / name).is_file() for name in names)
    assert source_of(tmp_path / "out")["splits"]["valid"] == {"pairs": 15}
    write_pairs(str(tmp_path / "t"), "en", "de", rows(301))
    assert "text.en was " in refusal(*run, "--target-lang", "de", "--vocab-size", 100)
