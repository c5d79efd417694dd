"""Texts for language models: corpora with the right checksum alone, binarised data with their counts and unit."""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.text_units import text_unit
from fairseq_mega.lab.prepare import download, toy_data
from fairseq_mega.lab.prepare.archives import Archive
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, split_text
from fairseq_mega.lab.prepare.language_modeling.texts import CORPORA, count, obtain_corpus
from fairseq_mega.lab.prepare.progress import SPLITS
from tests.support import helpers

UNREACHABLE = "http://127.0.0.1:1/folder"


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small archives in place of the real ones, with their checksums, at addresses that cannot be reached."""
    toy_data.wikitext(tmp_path)
    text = toy_data.running_text()
    md5 = hashlib.md5((tmp_path / "wikitext-103-v1.zip").read_bytes()).hexdigest()
    wikitext = CORPORA["wikitext-2"]._replace(archive=Archive(f"{UNREACHABLE}/wikitext-2-v1.zip", {"md5": md5}))
    digests = {"md5": hashlib.md5(text).hexdigest(), "sha1": hashlib.sha1(text).hexdigest()}
    enwik8 = CORPORA["enwik8"]._replace(
        archive=Archive(f"{UNREACHABLE}/enwik8.zip", {}), digests=digests, bytes=len(text)
    )
    monkeypatch.setitem(CORPORA, "wikitext-2", wikitext)
    monkeypatch.setitem(CORPORA, "enwik8", enwik8)
    monkeypatch.setattr(download, "WAIT", 0)
    return tmp_path


def test_an_archive_of_ones_own_is_unpacked_and_recorded(small: Path) -> None:
    archive = small / "wikitext-103-v1.zip"
    records = obtain_corpus(CORPORA["wikitext-2"], small / "raw", archive)
    for split in SPLITS:
        want = "".join(f"{line}\n" for line in toy_data.wikitext_lines(split))
        assert (small / "raw" / f"wiki.{split}.tokens").read_text(encoding="utf-8") == want
    sha256 = hashlib.sha256(archive.read_bytes()).hexdigest()
    assert records == {archive.name: {"bytes": archive.stat().st_size, "sha256": sha256}}


def test_something_else_than_enwik8_is_refused(small: Path) -> None:
    """An unpacked text is accepted in place of the archive."""
    path = small / "copy"
    path.write_bytes(toy_data.running_text())
    assert list(obtain_corpus(CORPORA["enwik8"], small / "raw", path)) == [path.name]
    for content in (b"<html>moved</html>", bytes(toy_data.SIZE)):
        path.write_bytes(content)
        with pytest.raises(download.DownloadError, match="enwik8: expected "):
            obtain_corpus(CORPORA["enwik8"], small / "raw", path)


def cut(unit: str, train: Path, output: Path, **options: Any) -> Dict[str, Any]:
    split_text(Cut(unit, train, **options), output)
    return json.loads((output / "counts.json").read_text())


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """400 lines of one to nine words, every tenth of them empty, without a line feed at the end."""
    lines = helpers.random_sentences(400, seed=3)
    lines[::10] = [""] * 40
    path = tmp_path / "own text"
    path.write_text("\n".join(lines))
    return path


def binarise(folder: Path, data: Path) -> Path:
    arguments: List[object] = ["--only-source", "--destdir", data]
    for split in SPLITS:
        arguments += [f"--{split}pref", folder / split]
    helpers.run_fairseq("preprocess", arguments)
    return data


@pytest.mark.parametrize("unit", ["words", "subwords", "bytes"])
def test_what_is_split_is_what_fairseq_binarises(unit: str, text: Path, tmp_path: Path) -> None:
    out = tmp_path / "text"
    written = cut(unit, text, out, blocks=4, held_out=0.1, vocab_size=40)["splits"]
    assert sum(part["bytes"] for part in written.values()) == text.stat().st_size
    assert sum(part["lines"] for part in written.values()) == 400
    tokens = {"bytes": text.stat().st_size + 1, "words": len(text.read_text().split()) + 400}
    assert unit == "subwords" or sum(part["tokens"] for part in written.values()) == tokens[unit]
    found = count(binarise(out, tmp_path / "data-bin"), out)
    for split in SPLITS:
        part = found["splits"][split]
        assert part.pop("unknown") == 0
        assert part == {key: written[split][key] for key in ("lines", "tokens", "bytes")}
    dictionary = Dictionary.load(str(tmp_path / "data-bin" / "dict.txt"))
    assert found["dictionary"] == len(dictionary) == -(-(written["train"]["symbols"] + 4) // 8) * 8
    beside = text_unit(tmp_path / "data-bin", dictionary)
    lines = [beside.decode(line) for line in (out / "valid").read_text(encoding="utf-8").split("\n")[:-1]]
    assert beside.name == unit and set(lines) <= set(text.read_text().split("\n")) and len(set(lines)) > 5


def test_other_counts_than_the_published_are_refused(text: Path, tmp_path: Path) -> None:
    cut("words", text, tmp_path / "text")
    data = binarise(tmp_path / "text", tmp_path / "data-bin")
    with pytest.raises(ValueError, match=r"train: expected 36718 lines \(wikitext-2 as published\), found"):
        count(data, tmp_path / "text", published=CORPORA["wikitext-2"])
    assert CORPORA["wikitext-103"].counts()["test"] == {"lines": 4358, "tokens": 245569}


def test_splits_that_are_given_are_taken_whole(text: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("w1  w2\nnew\n")
    found = cut("words", text, tmp_path / "text", valid=valid)["splits"]
    assert (tmp_path / "text" / "valid").read_text() == "w1 w2\nnew\n"
    assert found["valid"] == {"lines": 2, "tokens": 5, "bytes": 11, "symbols": 3}
    assert found["train"]["lines"] + found["test"]["lines"] == 400 and 10 <= found["test"]["lines"] <= 40


def test_sizes_cut_in_the_middle_of_a_line_and_count_one_end_more(tmp_path: Path) -> None:
    path = tmp_path / "enwik"
    path.write_bytes(b"ab\ncd\n" + b"ef" + b"g\n")
    found = cut("bytes", path, tmp_path / "text", sizes=(6, 2, 2))["splits"]
    assert [found[split]["tokens"] for split in SPLITS] == [6, 3, 2]
    assert (tmp_path / "text" / "train").read_text().split() == ["97", "98", "99", "100"]
