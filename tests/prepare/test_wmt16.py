"""The preparation of WMT'16: unpacking, Moses text rules, byte-pair encoding, the length filter."""

import argparse
from pathlib import Path
from typing import Any, List

import pytest
from fairseq.data import encoders
from hypothesis import given
from hypothesis import strategies as st

from fairseq_mega.compat.files.card import described
from fairseq_mega.data.card import settings_of_data
from fairseq_mega.lab.prepare import toy_data, wmt16
from fairseq_mega.lab.prepare.wmt16 import clean_corpus, tokenizer, transform
from fairseq_mega.lab.runs.files import read_lines
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal, source_of


def write_lines(path: Path, lines: List[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    return path


@pytest.fixture
def archives(tmp_path: Path) -> Path:
    toy_data.wmt16(tmp_path / "archives")
    return tmp_path / "archives"


def test_sgm_segments_come_out_one_per_line_and_entities_stay() -> None:
    text = """<refset setid="x"><doc><p>
<seg id="1">Eins &amp; zwei.</seg>
<SEG ID="2">  über
 zwei   Zeilen </SEG><seg id="3"></seg>
</p></doc></refset>"""
    assert wmt16.read_sgm(text) == ["Eins &amp; zwei.", "über zwei Zeilen", ""]


def test_archives_unpack_in_order_and_in_parallel(archives: Path, tmp_path: Path) -> None:
    wmt16.unpack_all(archives, tmp_path / "raw", published=False)
    for side, language in enumerate(("en", "de")):
        for name in ("newstest2013", "newstest2014", "newstest2015", "newstest2016"):
            corpus = next(corpus for corpus in wmt16.EVALUATION if corpus.name == name)
            want = [" ".join(pair[side].split()) for pair in toy_data.corpus_pairs(corpus)]
            assert list(read_lines(tmp_path / "raw" / f"{name}.{language}")) == want
        pairs = [pair for corpus in wmt16.TRAINING for pair in toy_data.corpus_pairs(corpus)]
        assert list(read_lines(tmp_path / "raw" / f"train.{language}")) == [pair[side] for pair in pairs]
    assert [corpus.name for corpus in wmt16.TRAINING] == ["europarl-v7", "commoncrawl", "news-commentary-v11"]
    assert sorted(path.name for path in (tmp_path / "raw").iterdir()) == sorted(
        f"{split}.{language}" for split in wmt16.SPLITS for language in wmt16.LANGUAGES
    )


def test_a_wrong_number_of_lines_is_refused(archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = [corpus._replace(lines=toy_data.WMT16_LINES[corpus.name]) for corpus in wmt16.CORPORA]
    monkeypatch.setattr(wmt16, "CORPORA", right)
    wmt16.unpack_all(archives, tmp_path / "right")
    wrong = [corpus._replace(lines=corpus.lines + (corpus.name == "newstest2014")) for corpus in right]
    monkeypatch.setattr(wmt16, "CORPORA", wrong)
    with pytest.raises(ValueError, match="newstest2014: expected 46 lines, found 45"):
        wmt16.unpack_all(archives, tmp_path / "raw")
    assert not (tmp_path / "raw" / "train.en").exists()
    monkeypatch.setattr(wmt16, "CORPORA", wmt16.EVALUATION)
    (tmp_path / "right" / "newstest2013.de").write_text("one\n")
    with pytest.raises(ValueError, match="newstest2013: .* 9 English and 1 German"):
        wmt16.check_counts(tmp_path / "right", published=False)


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_a_folder_with_other_things_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs lie beside the data; texts that are tokenised already are not tokenised again."""
    (tmp_path / "runs").mkdir()
    run = ("wmt16", "--smoke", "--workers", 1, "--out", tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(wmt16, "learn_merges", lambda *_: (_ for _ in ()).throw(OSError("no merges")))
        assert "no merges" in refusal(*run)
    assert not (tmp_path / "tokenized").exists()
    output = prepare(*run).succeeded().output
    assert "raw: done before" in output and "tokenized: done before" in output
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        *("bpe", "card.json", "data-bin", "raw", "runs", "tokenized")
    ]
    card = source_of(tmp_path)
    assert card["splits"]["newstest2014"] == {"pairs": toy_data.WMT16_LINES["newstest2014"]}
    assert {record["url"] for record in card["inputs"].values()} == set(wmt16.archive_urls())
    options = argparse.Namespace(bpe="subword_nmt", bpe_codes=str(tmp_path / "bpe" / "codes"), bpe_separator="@@")
    moses = argparse.Namespace(tokenizer="moses", moses_no_escape=True, moses_no_dash_splits=True)
    assert settings_of_data(tmp_path / "data-bin") == {
        "subwords": described("bpe", options),
        "tokenizer": described("tokenizer", moses),
    }
    (tmp_path / "card.json").unlink()
    assert "holds bpe, data-bin, raw but no card.json" in refusal(*run)


@pytest.mark.parametrize(
    ("language", "clean", "line", "want"),
    [
        # Worked by hand from the Moses scripts.
        ("en", True, "“Don’t,” he said…", '" Don \'t , " he said ...'),
        ("en", True, "soft\u00adhyphen\u200bzero", "soft hyphen zero"),
        ("en", False, "a state-of-the-art <b> & 'x' y", "a state-of-the-art < b > & ' x ' y"),
        ("de", True, "„Ja“, sagte die EU-Kommission.", '" Ja " , sagte die EU-Kommission .'),
    ],
)
def test_moses_rules(language: str, clean: bool, line: str, want: str) -> None:
    assert tokenizer(language, clean)(line) == want


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30))
def test_cleaning_keeps_pairs_together(tmp_path_factory: pytest.TempPathFactory, lengths: Any) -> None:
    folder = tmp_path_factory.mktemp("clean")
    for side, language in enumerate(("en", "de")):
        write_lines(folder / f"train.{language}", [" ".join([f"{n}"] * pair[side]) for n, pair in enumerate(lengths)])
    want = [n for n, pair in enumerate(lengths) if min(pair) >= 3 and max(pair) / min(pair) <= 1.5]
    assert clean_corpus(folder / "train", folder / "out", ("en", "de")) == (len(lengths), len(want))
    for language in ("en", "de"):
        assert [int(line.split()[0]) for line in read_lines(folder / f"out.{language}")] == want


def reverse(lines: List[str]) -> List[str]:
    return [line.replace("|", "\n")[::-1] for line in lines]


@pytest.mark.parametrize(("processes", "lines"), [(1, 500), (3, 1301)])
def test_lines_keep_their_order_over_processes(tmp_path: Path, processes: int, lines: int) -> None:
    text = [f"{n}\u2028\x85 x" for n in range(lines)]
    transform(write_lines(tmp_path / "in", text), tmp_path / "out", reverse, processes)
    assert list(read_lines(tmp_path / "out")) == [line[::-1] for line in text]
    with pytest.raises(ValueError, match="became several lines"):  # and no result
        transform(write_lines(tmp_path / "in", [*text, "a|b"]), tmp_path / "none", reverse, processes)
    assert not (tmp_path / "none").exists()


SENTENCES = [
    "It's a well-known fact, isn't it?",
    'He said: "No [really] & truly <b>yes</b>."',
    "Er sagte: \u201eNein\u201c \u2013 z.B. der S-Bahn-Hof, ca. 5 km -- oder\u2026",
    "a\u00a0b \u3000c\td  e &apos; and &amp; are kept @-@ so",
    "",
]


def words(language: str, line: str, **flags: bool) -> "list[str]":
    """Words of a line by fairseq's --tokenizer moses, as its dictionaries and encoders part them."""
    given = argparse.Namespace(tokenizer="moses", source_lang=language, target_lang=language, **flags)
    return encoders.build_tokenizer(given).encode(line).split(" ")


@pytest.mark.parametrize("language", ["en", "de"])
def test_fairseq_cuts_as_the_recipe_with_two_options(language: str) -> None:
    """Every line has the recipe's words with both options, and some lines differ without either."""
    recipe = tokenizer(language, False)
    wanted = [recipe(line).split(" ") for line in SENTENCES]
    both = {"moses_no_escape": True, "moses_no_dash_splits": True}
    assert [words(language, line, **both) for line in SENTENCES] == wanted
    for omitted in both:
        assert [words(language, line, **{**both, omitted: False}) for line in SENTENCES] != wanted
