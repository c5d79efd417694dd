"""Archives of the corpora: taken only with the right checksum, unpacked whole, and recorded."""

import gzip
import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.prepare import download
from fairseq_mega.lab.prepare.checksums import Records, record_of
from fairseq_mega.lab.prepare.language_modeling import toy_data
from fairseq_mega.lab.prepare.language_modeling.gcide import obtain_gcide
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA, obtain_corpus
from fairseq_mega.lab.prepare.splits import SPLITS

UNREACHABLE = "http://127.0.0.1:1/folder"


def obtain(corpus: str, folder: Path, **options: Any) -> Records:
    return obtain_corpus(CORPORA[corpus], folder / "raw", **options)


def refusal(corpus: str, folder: Path, **options: Any) -> str:
    with pytest.raises(download.DownloadError) as caught:
        obtain(corpus, folder, **options)
    return str(caught.value)


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small archives in place of the real ones, with their checksums, at addresses that cannot be reached."""
    for name in ("wikitext-2", "enwik8"):
        toy_data.write_corpus(name, tmp_path / f"{name}.zip")
    text = toy_data.running_text(toy_data.SIZE)
    md5 = hashlib.md5((tmp_path / "wikitext-2.zip").read_bytes()).hexdigest()
    wikitext = replace(CORPORA["wikitext-2"], url=f"{UNREACHABLE}/wikitext-2-v1.zip", archive_digests={"md5": md5})
    enwik8 = replace(
        CORPORA["enwik8"],
        url=f"{UNREACHABLE}/enwik8.zip",
        file_digests={"md5": hashlib.md5(text).hexdigest(), "sha1": hashlib.sha1(text).hexdigest()},
        bytes=len(text),
    )
    monkeypatch.setitem(CORPORA, "wikitext-2", wikitext)
    monkeypatch.setitem(CORPORA, "enwik8", enwik8)
    monkeypatch.setattr(download, "WAIT", 0)
    return tmp_path


def test_an_archive_of_ones_own_is_unpacked_and_recorded(small: Path) -> None:
    archive = small / "wikitext-2.zip"
    records = obtain("wikitext-2", small, archive=archive)
    for split in SPLITS:
        want = "".join(f"{line}\n" for line in toy_data.wikitext_lines(split))
        assert (small / "raw" / f"wiki.{split}.tokens").read_text(encoding="utf-8") == want
    assert records == {
        "wikitext-2.zip": {"bytes": archive.stat().st_size, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    }
    assert not list((small / "raw").glob("*.partial"))


def test_a_downloaded_archive_is_recorded_with_its_address(small: Path) -> None:
    (small / "raw").mkdir()
    (small / "enwik8.zip").rename(small / "raw" / "enwik8.zip")
    records = obtain("enwik8", small)
    assert (small / "raw" / "enwik8").read_bytes() == toy_data.running_text(toy_data.SIZE)
    assert records["enwik8.zip"]["url"] == f"{UNREACHABLE}/enwik8.zip"


def test_another_checksum_is_refused_with_both(small: Path) -> None:
    archive = small / "wikitext-2.zip"
    content = bytearray(archive.read_bytes())
    content[50] ^= 1
    archive.write_bytes(content)
    message = refusal("wikitext-2", small, archive=archive)
    want, found = CORPORA["wikitext-2"].archive_digests["md5"], hashlib.md5(content).hexdigest()
    assert f"{archive}: expected MD5 {want}, found {found}" in message
    assert "Salesforce/wikitext" in message and "--text DIR" in message
    assert not (small / "raw").exists()


@pytest.mark.parametrize("packed", [False, True])
def test_the_unpacked_text_is_taken_plain_or_packed(packed: bool, small: Path) -> None:
    folder = small / "mirror"
    folder.mkdir()
    for split in SPLITS:
        content = f"text of {split}\n".encode()
        name = f"wiki.{split}.tokens"
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)
    records = obtain("wikitext-2", small, text=folder)
    assert (small / "raw" / "wiki.test.tokens").read_text() == "text of test\n"
    assert sorted(records) == sorted(path.name for path in folder.iterdir())


def test_an_unpacked_enwik8_is_taken_too(small: Path) -> None:
    (small / "copy").write_bytes(toy_data.running_text(toy_data.SIZE))
    obtain("enwik8", small, archive=small / "copy")
    assert (small / "raw" / "enwik8").read_bytes() == toy_data.running_text(toy_data.SIZE)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"<html>moved</html>", f"enwik8: expected {toy_data.SIZE} bytes, found 18. It came from "),
        (bytes(toy_data.SIZE), "enwik8: expected MD5 "),
    ],
)
def test_something_else_than_enwik8_is_refused(content: bytes, expected: str, small: Path) -> None:
    (small / "copy").write_bytes(content)
    message = refusal("enwik8", small, archive=small / "copy")
    assert expected in message
    assert "--archive FILE" in message


def test_a_text_that_lies_there_is_taken(small: Path) -> None:
    (small / "raw").mkdir()
    text = toy_data.running_text(toy_data.SIZE)
    (small / "raw" / "enwik8").write_bytes(text)
    assert list(obtain("enwik8", small)) == ["enwik8"]
    (small / "raw" / "enwik8").write_bytes(text[:-1] + b"?")
    assert "enwik8: expected MD5 " in refusal("enwik8", small)


def test_a_dictionary_is_unpacked_and_recorded(small: Path) -> None:
    dictionary = small / "gcide.dict.dz"
    toy_data.write_corpus("gcide", dictionary)
    records = obtain_gcide(small / "raw", dictionary=dictionary)
    assert (small / "raw" / "gcide.txt").read_bytes() == toy_data.running_text(toy_data.SIZE)
    assert records == {dictionary.name: record_of(dictionary)}
    dictionary.write_bytes(b"no gzip")
    with pytest.raises(download.DownloadError, match=r"gcide\.dict\.dz cannot be unpacked"):
        obtain_gcide(small / "raw", dictionary=dictionary)
