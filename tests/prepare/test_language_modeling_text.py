"""Text to splits to binarised data: files, counts and refusals."""

import json
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.text_units import text_unit
from fairseq_mega.lab.prepare.language_modeling import toy_data
from fairseq_mega.lab.prepare.language_modeling.counting import count
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, split_text
from fairseq_mega.lab.runs.files import write_json
from tests.support import helpers
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare

SPLITS = ("train", "valid", "test")


def cut(unit: str, train: Path, output: Path, **options: Any) -> None:
    split_text(Cut(unit, train, **options), output)


def error_of(call: Callable[..., object], *arguments: Any, **options: Any) -> str:
    with pytest.raises((ValueError, OSError)) as caught:
        call(*arguments, **options)
    return str(caught.value)


def counts_of(folder: Path) -> Dict[str, Any]:
    return json.loads((folder / "counts.json").read_text())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """400 lines of one to nine words, every tenth of them empty, without a line feed at the end."""
    lines = helpers.random_sentences(400, seed=3)
    lines[::10] = [""] * 40
    path = tmp_path / "own text"
    path.write_text("\n".join(lines))
    return path


def binarise(folder: Path, data: Path, *options: object) -> Path:
    arguments: List[object] = ["--only-source", "--destdir", data, *options]
    for split in SPLITS:
        arguments += [f"--{split}pref", folder / split]
    helpers.run_fairseq("preprocess", arguments)
    return data


@pytest.mark.parametrize("unit", ["words", "bytes"])
def test_what_is_split_is_what_fairseq_binarises(unit: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut(unit, text, out, blocks=4, held_out=0.1)
    written = counts_of(out)
    assert written["unit"] == unit
    assert sum(part["bytes"] for part in written["splits"].values()) == text.stat().st_size
    assert sum(part["lines"] for part in written["splits"].values()) == 400
    if unit == "bytes":
        assert sum(part["tokens"] for part in written["splits"].values()) == text.stat().st_size + 1
    else:
        content = text.read_text()
        assert sum(part["tokens"] for part in written["splits"].values()) == len(content.split()) + 400
        assert sorted(line for split in SPLITS for line in (out / split).read_text().split("\n")[:-1]) == sorted(
            content.split("\n")
        )
    assert not list(out.glob("*.partial"))

    data = binarise(out, tmp_path / "data-bin")
    write_json(tmp_path / "counts.json", count(data, out))
    found = counts_of(tmp_path)
    for split in SPLITS:
        part = found["splits"][split]
        assert part.pop("unknown") == 0
        assert part == {key: written["splits"][split][key] for key in ("lines", "tokens", "bytes")}
    symbols = len(set((out / "train").read_text().split()))
    assert found["dictionary"] == -(-(symbols + 4) // 8) * 8


@pytest.mark.parametrize("unit", ["words", "subwords", "bytes"])
def test_the_unit_lies_beside_the_dictionary(unit: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut(unit, text, out, vocab_size=40)
    data = binarise(out, tmp_path / "data-bin")
    write_json(tmp_path / "counts.json", count(data, out))
    assert counts_of(tmp_path)["splits"]["train"]["unknown"] == 0
    dictionary = Dictionary.load(str(data / "dict.txt"))
    found = text_unit(data, dictionary)
    assert found.name == unit
    lines = [found.decode(line) for line in (out / "valid").read_text(encoding="utf-8").split("\n")[:-1]]
    assert set(lines) <= set(text.read_text().split("\n")) and len(set(lines)) > 5
    if unit == "subwords":
        assert len(dictionary) <= 48 and len({piece for line in lines for piece in found.encode(line).split()}) > 10


def test_splits_that_are_given_are_taken_whole(text: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("w1  w2\nnew\n")
    out = tmp_path / "text"
    cut("words", text, out, valid=valid)
    assert (out / "valid").read_text() == "w1 w2\nnew\n"
    found = counts_of(out)["splits"]
    assert found["valid"] == {"lines": 2, "tokens": 5, "bytes": 11, "symbols": 3}
    assert found["train"]["lines"] + found["test"]["lines"] == 400
    assert 10 <= found["test"]["lines"] <= 40
    cut("words", text, out, valid=valid, test=valid)
    assert counts_of(out)["splits"]["train"]["lines"] == 400


def test_sizes_cut_in_the_middle_of_a_line_and_count_one_end_more(tmp_path: Path) -> None:
    path = tmp_path / "enwik"
    path.write_bytes(b"ab\ncd\n" + b"ef" + b"g\n")
    out = tmp_path / "text"
    cut("bytes", path, out, sizes=(6, 2, 2))
    found = counts_of(out)["splits"]
    assert [found[split]["tokens"] for split in SPLITS] == [6, 3, 2]
    assert [found[split]["bytes"] for split in SPLITS] == [6, 2, 2]
    assert (out / "train").read_text().split() == ["97", "98", "99", "100"]


def test_a_limit_uses_a_part_of_the_text(text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    cut("bytes", text, out, limit=2000, blocks=5)
    assert 1800 < sum(part["bytes"] for part in counts_of(out)["splits"].values()) < 2300


def test_the_published_numbers_are_the_ones_of_the_corpora() -> None:
    corpus = CORPORA["wikitext-103"]
    assert corpus.counts()["train"] == {"lines": 1801350, "tokens": 103227021}
    assert corpus.counts()["valid"] == {"lines": 3760, "tokens": 217646}
    assert corpus.counts()["test"] == {"lines": 4358, "tokens": 245569}
    assert corpus.dictionary == 267744


@pytest.mark.usefixtures("in_process")
def test_a_part_of_a_text_is_taken(tmp_path: Path) -> None:
    """Both texts are cut to the same size, with the same share held out."""
    toy_data.write_corpus("gcide", tmp_path / "gcide.dict.dz")
    toy_data.write_corpus("own", tmp_path / "own.txt")
    found = []
    for name, option, file in (("gcide", "--dictionary", "gcide.dict.dz"), ("text-lm", "--train", "own.txt")):
        more = ["--unit", "bytes", "--limit", 8000, "--held-out", 0.1, "--blocks", 4, "--workers", 1]
        prepare(name, option, tmp_path / file, *more, "--out", tmp_path / name).succeeded()
        splits = json.loads((tmp_path / name / "counts.json").read_text())["splits"]
        found.append([splits[split]["bytes"] for split in ("train", "valid", "test")])
    for sizes in found:
        assert sizes == pytest.approx([6400, 800, 800], rel=0.5) and sum(sizes) == pytest.approx(8000, rel=0.1)


@pytest.mark.usefixtures("in_process")
@pytest.mark.parametrize("unit", ["words", "subwords", "bytes", "pairs"])
def test_a_folder_with_commas(unit: str, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fairseq-preprocess separates names of files by commas."""
    monkeypatch.chdir(tmp_path)
    data, options = "text-lm", ["--train", str(text), "--unit", unit]
    if unit == "pairs":
        lines = [f"{number} {line}\n" for number, line in enumerate(helpers.random_sentences(400, seed=4))]
        for language in ("en", "de"):
            (tmp_path / f"p,t.{language}").write_text("".join(lines))
        data, options = "own-pairs", ["--text", "p,t", "--source-lang", "en", "--target-lang", "de"]
    prepare(data, *options, "--out", "a,b/c,", "--workers", 1).succeeded()
    for split in SPLITS:
        assert [file for file in (tmp_path / "a,b/c,/data-bin").glob(f"{split}.*bin") if file.stat().st_size]
