"""Texts for language models: corpora with the right checksum alone, binarised data with their counts and unit."""

import hashlib
import json
import os
import zipfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest
from fairseq.data import Dictionary

from fairseq_mega.data.text_units import text_unit
from fairseq_mega.lab.prepare import binarised, download, toy_data
from fairseq_mega.lab.prepare.archives import Archive
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, split_text
from fairseq_mega.lab.prepare.language_modeling.texts import CORPORA, count, obtain_corpus
from fairseq_mega.lab.prepare.progress import SPLITS
from tests.support import helpers
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare, refusal, source_of

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
    return tmp_path


def test_something_else_than_enwik8_is_refused(small: Path) -> None:
    path = small / "enwik8.zip"
    for content, said in ((toy_data.running_text(), ""), (bytes(toy_data.SIZE), "enwik8: expected MD5")):
        with zipfile.ZipFile(path, "w") as packed:
            packed.writestr("enwik8", content)
        with pytest.raises(download.DownloadError, match=said) if said else nullcontext():
            assert list(obtain_corpus(CORPORA["enwik8"], small / "raw", path)) == [path.name]
    path.write_bytes(b"<html>moved</html>")
    with pytest.raises(download.DownloadError, match="cannot be unpacked"):
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
    written = cut(unit, text, out, held_out=0.1, vocab_size=40)["splits"]
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
    cut("words", text, tmp_path / "text", held_out=0.05)
    data = binarise(tmp_path / "text", tmp_path / "data-bin")
    with pytest.raises(ValueError, match="wikitext-2 as published has .*36718.*found"):
        count(data, tmp_path / "text", published=CORPORA["wikitext-2"])
    assert CORPORA["wikitext-103"].counts()["test"] == {"lines": 4358, "tokens": 245569}


def test_splits_that_are_given_are_taken_whole(text: Path, tmp_path: Path) -> None:
    valid = tmp_path / "valid.txt"
    valid.write_text("w1  w2\nnew\n")
    found = cut("words", text, tmp_path / "text", valid=valid, held_out=0.05)["splits"]
    assert (tmp_path / "text" / "valid").read_text() == "w1 w2\nnew\n"
    assert found["valid"] == {"lines": 2, "tokens": 5, "bytes": 11, "symbols": 3}
    assert found["train"]["lines"] + found["test"]["lines"] == 400 and 10 <= found["test"]["lines"] <= 40


def test_sizes_cut_in_the_middle_of_a_line_and_count_one_end_more(tmp_path: Path) -> None:
    path = tmp_path / "enwik"
    path.write_bytes(b"ab\ncd\n" + b"ef" + b"g\n")
    found = cut("bytes", path, tmp_path / "text", sizes=(6, 2, 2))["splits"]
    assert [found[split]["tokens"] for split in SPLITS] == [6, 3, 2]
    assert (tmp_path / "text" / "train").read_text().split() == ["97", "98", "99", "100"]


@pytest.mark.usefixtures("in_process")
def test_words_that_occur_once_become_unknown(text: Path, tmp_path: Path) -> None:
    text.write_text("once twice twice\n" + text.read_text())
    prepare("text-lm", "--train", text, "--out", tmp_path / "out").succeeded()
    words = [line.split()[0] for line in (tmp_path / "out" / "data-bin" / "dict.txt").read_text().splitlines()]
    assert "twice" in words and "once" not in words
    assert source_of(tmp_path / "out")["splits"]["train"]["unknown"] >= 1


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an interrupted binarisation do no harm and do not count as done; the text is not cut again."""
    binarise, out, whole = binarised.run_command, tmp_path / "out", tmp_path / "whole"

    def interrupt(words: Sequence[str], *others: Any, **more: Any) -> None:
        half = Path(words[words.index("--destdir") + 1])
        half.mkdir(parents=True)
        (half / "test.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(binarised, "run_command", interrupt)
    assert prepare("gcide", "--out", out, "--smoke").status == 130
    assert not (out / "data-bin").exists()
    assert "limit was null and is 9 now" in refusal("gcide", "--out", out, "--smoke", "--limit", 9)
    monkeypatch.setattr(binarised, "run_command", binarise)
    assert "text: done before" in prepare("gcide", "--out", out, "--smoke", "--workers", 3).succeeded().output
    prepare("gcide", "--out", whole, "--smoke").succeeded()
    found, want = ({**source_of(folder)["files"], "data-bin/preprocess.log": None} for folder in (out, whole))
    assert found == want and not (out / "unfinished").exists()
    for split, share in (("train", 0.9), ("valid", 0.05), ("test", 0.05)):
        assert abs(source_of(out)["splits"][split]["bytes"] / toy_data.SIZE - share) < 0.03


UNPACK = """case $1 in
  -x) grep -q package "$2"; mkdir -p "$3"; cp -r '{}/usr' "$3" ;;
  -f) echo 0.48-test ;;
esac"""


@pytest.mark.usefixtures("in_process")
def test_gcide_is_read_from_the_fetched_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By stand-ins of apt-get, which fetches, and of dpkg-deb, which unpacks, a small dict-gcide."""
    toy_data.gcide(tmp_path)
    (tmp_path / "bin").mkdir()
    for name, body in (
        ("apt-get", 'for last; do :; done; [ "$last" = dict-gcide ]; echo package >dict-gcide_9_all.deb'),
        ("dpkg-deb", UNPACK.format(tmp_path)),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nset -eu\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    assert "no line is left" in refusal("gcide", "--out", tmp_path / "out", "--limit", 1)
    prepare("gcide", "--out", tmp_path / "out").succeeded()
    card = source_of(tmp_path / "out")
    assert sum(split["bytes"] for split in card["splits"].values()) == toy_data.SIZE
    assert card["inputs"]["dict-gcide_9_all.deb"]["version"] == "0.48-test"
