"""Cleaning, sentence pairing and splitting of parallel text, and reading and writing its files."""

from pathlib import Path
from typing import Dict, List, Optional, Tuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.translation.dataset import write_own_pairs
from fairseq_mega.lab.prepare.translation.parallel_files import read_pairs, read_sentences, write_corpus, write_pairs
from fairseq_mega.lab.prepare.translation.parallel_text import (
    HELP_RULES,
    TEST_SHARE,
    VALID_SHARE,
    Corpus,
    Pair,
    PairRules,
    add_names,
    clean_pages,
    clean_text,
    leak_key,
    own_corpus,
    pair_sentences,
    rejection,
    remove_repeats,
    split_of_page,
    split_sentences,
)
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal, source_of

words = st.lists(st.text(alphabet="abcäßz.!?,;:„“\"'()5 \t\u00a0\u2028\x00\ufeff", max_size=12), max_size=12).map(
    " ".join
)
pairs = st.builds(Pair, words.map(clean_text), words.map(clean_text))


@given(st.text())
def test_clean_text_is_idempotent_and_one_line(text: str) -> None:
    cleaned = clean_text(text)
    assert clean_text(cleaned) == cleaned
    assert len(cleaned.splitlines()) <= 1
    assert cleaned == " ".join(cleaned.split())


def test_clean_text_keeps_the_text_itself() -> None:
    assert clean_text(" A\u00a0b\tc\u2028d\u200b\u00ad… „Größe“ ½ \ufeffu\u0308 ") == "A b c d… „Größe“ ½ ü"


@given(words.map(clean_text))
def test_sentences_join_to_the_text(text: str) -> None:
    sentences = split_sentences(text)
    assert " ".join(sentences) == text
    assert all(sentences) or not text


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("One ends. Two ends! Three?", ["One ends.", "Two ends!", "Three?"]),
        (
            'He said "Stop." Then it ended. (It did.) Yes.',
            ['He said "Stop."', "Then it ended.", "(It did.)", "Yes."],
        ),
        ("Öffnen Sie z. B. Writer bzw. Calc. Es geht.", ["Öffnen Sie z. B. Writer bzw. Calc.", "Es geht."]),
        ("Use e.g. Writer, i.e. Text. It works.", ["Use e.g. Writer, i.e. Text.", "It works."]),
        ("Am 3. Oktober um 5.30 Uhr. Danach nicht.", ["Am 3. Oktober um 5.30 Uhr.", "Danach nicht."]),
        ("Save the file. txt is the ending.", ["Save the file. txt is the ending."]),
        ("Wait ... Then go on.", ["Wait ...", "Then go on."]),
        ("No end", ["No end"]),
        ("", []),
    ],
)
def test_split_sentences(text: str, want: List[str]) -> None:
    assert split_sentences(text) == want


def test_sentences_are_paired_only_where_they_correspond() -> None:
    both = Pair("First it runs. Then it ends.", "Erst läuft es. Dann endet es.")
    assert pair_sentences(both, HELP_RULES) == [
        Pair("First it runs.", "Erst läuft es."),
        Pair("Then it ends.", "Dann endet es."),
    ]
    merged = Pair("First it runs. Then it ends.", "Erst läuft es, dann endet es.")
    assert pair_sentences(merged, HELP_RULES) == [merged]
    shifted = Pair(
        "Yes. " + "It is a long way to go from here until there is any end of it.",
        "Ja " + "das " * 20 + "ist. Ja.",
    )
    assert pair_sentences(shifted, HELP_RULES) == [shifted]


@given(pairs)
def test_pairing_sentences_loses_no_text(pair: Pair) -> None:
    pieces = pair_sentences(pair, HELP_RULES)
    assert " ".join(p.source for p in pieces) == pair.source
    assert " ".join(p.target for p in pieces) == pair.target


@pytest.mark.parametrize(
    ("source", "target", "want"),
    [
        ("Insert a table", "Tabelle einfügen", None),
        ("", "Tabelle", "empty side"),
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


@given(pairs, st.integers(0, 6))
def test_kept_pairs_keep_the_rules(pair: Pair, ratio: int) -> None:
    rules = PairRules(min_source_words=2, max_words=8, max_length_ratio=ratio, length_slack=1, must_differ=True)
    lengths = [len(text.split()) for text in pair]
    good = (
        lengths[0] >= 2
        and lengths[1] >= 1
        and max(lengths) <= 8
        and pair.source != pair.target
        and (ratio == 0 or (lengths[0] <= ratio * lengths[1] + 1 and lengths[1] <= ratio * lengths[0] + 1))
    )
    assert (rejection(pair, rules) is None) == good


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


def test_pages_fall_into_splits_by_their_path_alone() -> None:
    pages = [f"text/swriter/{n}.html" for n in range(4000)]
    splits = [split_of_page(page) for page in pages]
    assert splits == [split_of_page(page) for page in pages]
    shares = [splits.count(name) / len(pages) for name in SPLITS]
    assert shares == pytest.approx([1 - VALID_SHARE - TEST_SHARE, VALID_SHARE, TEST_SHARE], abs=0.01)


def test_clean_pages_counts_what_it_drops() -> None:
    page = next(f"{n}" for n in range(100) if split_of_page(f"{n}") == "test")
    other = next(f"{n}" for n in range(100) if split_of_page(f"{n}") == "train")
    known = ("Open the menu. Close all windows.", "Das Menü öffnen. Alle Fenster schließen.")
    corpus = clean_pages(
        [
            (other, [known, known, ("OK", "OK"), ("Edit - Copy - Paste", "Bearbeiten")]),
            (page, [("open the menu", "Menü öffnen"), ("Fresh text of today", "Neuer Text von heute")]),
        ]
    )
    assert corpus.splits["train"] == [
        Pair("Open the menu.", "Das Menü öffnen."),
        Pair("Close all windows.", "Alle Fenster schließen."),
        Pair("Edit - Copy - Paste", "Bearbeiten"),
    ]
    assert corpus.splits["test"] == [Pair("Fresh text of today", "Neuer Text von heute")]
    assert corpus.dropped == {"repeated": 2, "not translated": 1, "held out, but known from another split": 1}


def test_short_names_are_learnt_and_not_held_out() -> None:
    """Test and validation stay sentences; a name that one of them consists of is not learnt."""
    page = next(f"{n}" for n in range(100) if split_of_page(f"{n}") == "test")
    other = next(f"{n}" for n in range(100) if split_of_page(f"{n}") == "train")
    short = [("Start Center", "Startcenter"), ("Open", "Öffnen")]
    corpus = clean_pages([(other, short), (page, [*short, ("Insert Index Entry", "Verzeichniseintrag einfügen")])])
    assert corpus.splits["train"] == [Pair(*pair) for pair in short]
    assert corpus.splits["test"] == [Pair("Insert Index Entry", "Verzeichniseintrag einfügen")]
    assert corpus.dropped == {"too short": 2}
    names = [("Open", "Öffnen"), ("Page ", "Seite"), ("OK", "OK"), ("insert index entry.", "Eintrag")]
    names.append(("Page", "Seite"))
    add_names(corpus, [(other, names), (page, [("Hidden", "Verborgen")])])
    assert corpus.splits["train"] == [*(Pair(*pair) for pair in short), Pair("Page", "Seite")]


@given(st.lists(pairs, max_size=20))
def test_written_pairs_are_read_back(tmp_path_factory: pytest.TempPathFactory, rows: List[Pair]) -> None:
    if not any(p.source for p in rows) or not any(p.target for p in rows):
        rows = [*rows, Pair("a", "b")]
    prefix = str(tmp_path_factory.mktemp("pairs") / "text")
    write_pairs(prefix, "en", "de", rows)
    assert read_pairs(prefix, "en", "de") == rows


def test_odd_lines_keep_the_pairing(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_bytes("\ufeffone\r\n\r\nthr\u2028ee\x0b\x85\nfour".encode())
    (tmp_path / "t.de").write_bytes(b"eins\n\n\tdrei\n4\n")
    assert read_pairs(str(tmp_path / "t"), "en", "de") == [
        Pair("one", "eins"),
        Pair("", ""),
        Pair("thr ee", "drei"),
        Pair("four", "4"),
    ]


def test_bad_files_are_named_with_their_line(tmp_path: Path) -> None:
    (tmp_path / "t.en").write_bytes(b"good\nbad \xfc byte\n")
    with pytest.raises(ValueError, match=r"t\.en: line 2: .*0xfc"):
        read_sentences(tmp_path / "t.en")
    (tmp_path / "t.de").write_text("a\nb\n")
    (tmp_path / "t.fr").write_text("a\nb\nc\n")
    with pytest.raises(ValueError, match=r"t\.de has 2 lines but .*t\.fr has 3"):
        read_pairs(str(tmp_path / "t"), "de", "fr")
    with pytest.raises(FileNotFoundError, match=r"t\.pl"):
        read_sentences(tmp_path / "t.pl")


def test_too_few_pairs_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="too few train pairs: 36 left, at least 50 needed"):
        write_corpus(own_corpus(rows(40), None, None, held_out=2), tmp_path / "out", "en", "de")
    with pytest.raises(ValueError, match=r"too few test pairs: 2 left.*--test PREFIX"):
        write_corpus(own_corpus(rows(100), rows(9), None, held_out=2), tmp_path / "out", "en", "de")


def test_given_sources_that_are_learnt_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Pairs that the command holds out itself are not."""
    write_pairs(str(tmp_path / "t"), "en", "de", rows(300))
    write_pairs(str(tmp_path / "given"), "en", "de", [Pair("SOURCE  7 .", "Ziel"), *rows(9, 300), *rows(2, 10)])
    for split in ("test", "valid", ""):
        prefixes: Dict[str, Optional[str]] = {"train": str(tmp_path / "t"), split: str(tmp_path / "given")}
        write_own_pairs({name: prefixes.get(name) for name in SPLITS}, tmp_path / f"out {split}", ("en", "de"))
        notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note: ")]
        assert [note.endswith(": 3") and f" of {split} " in note for note in notes] == [True] * bool(split)


def rows(count: int, offset: int = 0) -> List[Pair]:
    return [Pair(f"source {n}", f"Ziel {n}") for n in range(offset, offset + count)]


def test_own_text_is_held_out_from_the_end() -> None:
    corpus = own_corpus([*rows(200), Pair("", "leer")], None, None)
    assert corpus.splits == {"train": rows(180), "valid": rows(10, 180), "test": rows(10, 190)}
    assert corpus.dropped == {"empty side": 1}
    assert len(own_corpus(rows(30000), None, None).splits["test"]) == 1000


def test_own_test_set_is_kept_line_by_line() -> None:
    test = [Pair("", "leer"), Pair("source 1", "Ziel 1"), Pair("source 1", "Ziel 1")]
    corpus = own_corpus(rows(200), None, test, held_out=7)
    assert corpus.splits == {"train": rows(193), "valid": rows(7, 193), "test": test}


def test_limit_keeps_a_little_of_every_split(tmp_path: Path) -> None:
    write_corpus(own_corpus(rows(5000), None, None), tmp_path / "out", "en", "de", limit=200)
    lengths = {name: len(read_pairs(str(tmp_path / "out" / name), "en", "de")) for name in SPLITS}
    assert lengths == {"train": 200, "valid": 10, "test": 10}


@pytest.mark.parametrize("own", [(), ("valid",), ("test",), ("valid", "test")])
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
