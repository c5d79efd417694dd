"""Archives of the corpora: taken only with the right checksum, unpacked whole, and recorded."""

import functools
import gzip
import hashlib
import json
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mega.lab.prepare import download
from fairseq_mega.lab.prepare.language_modeling import command, toy_data
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.splits import SPLITS

UNREACHABLE = "http://127.0.0.1:1/folder"


def run(*arguments: object) -> int:
    return command.main([str(argument) for argument in arguments])


def obtain(corpus: str, folder: Path, *options: object) -> int:
    return run("obtain", "--corpus", corpus, "--output", folder / "raw", "--record", folder / "SOURCE.json", *options)


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
    monkeypatch.setattr(download, "fetch", functools.partial(download.fetch, wait=0))
    return tmp_path


def test_an_archive_of_ones_own_is_unpacked_and_recorded(small: Path) -> None:
    archive = small / "wikitext-2.zip"
    assert obtain("wikitext-2", small, "--archive", archive) == 0
    for split in SPLITS:
        want = "".join(f"{line}\n" for line in toy_data.wikitext_lines(split))
        assert (small / "raw" / f"wiki.{split}.tokens").read_text(encoding="utf-8") == want
    record = json.loads((small / "SOURCE.json").read_text())
    assert record == {
        "wikitext-2.zip": {"bytes": archive.stat().st_size, "sha256": hashlib.sha256(archive.read_bytes()).hexdigest()}
    }
    assert not list((small / "raw").glob("*.partial"))


def test_a_downloaded_archive_is_recorded_with_its_address(small: Path) -> None:
    (small / "raw").mkdir()
    (small / "enwik8.zip").rename(small / "raw" / "enwik8.zip")
    assert obtain("enwik8", small) == 0
    assert (small / "raw" / "enwik8").read_bytes() == toy_data.running_text(toy_data.SIZE)
    assert json.loads((small / "SOURCE.json").read_text())["enwik8.zip"]["url"] == f"{UNREACHABLE}/enwik8.zip"


def test_another_checksum_is_refused_with_both(small: Path, capsys: pytest.CaptureFixture) -> None:
    archive = small / "wikitext-2.zip"
    content = bytearray(archive.read_bytes())
    content[50] ^= 1
    archive.write_bytes(content)
    assert obtain("wikitext-2", small, "--archive", archive) == 1
    want, found = CORPORA["wikitext-2"].archive_digests["md5"], hashlib.md5(content).hexdigest()
    message = capsys.readouterr().err
    assert f"{archive}: expected MD5 {want}, found {found}" in message
    assert "Salesforce/wikitext" in message and "--text DIR" in message
    assert not (small / "raw").exists()


def test_a_host_that_is_gone_leads_to_the_mirror(small: Path, capsys: pytest.CaptureFixture) -> None:
    assert obtain("wikitext-2", small) == 1
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"language_modeling: error: {UNREACHABLE}/wikitext-2-v1.zip: ")
    for part in (
        "wikitext-2-v1.zip, MD5 542ccefacc6c27f945fb54453812b3cd",
        "--archive FILE",
        "Salesforce/wikitext (Hugging Face), configuration wikitext-2-v1",
        "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or .gz)",
        "--text DIR",
    ):
        assert part in message
    assert "--data-dir" not in message


def test_the_real_wikitext_103_is_what_the_specification_says() -> None:
    corpus = CORPORA["wikitext-103"]
    assert corpus.archive_digests == {"md5": "9ddaacaf6af0710eda8c456decff7832"}
    assert corpus.url == "https://wikitext.smerity.com/wikitext-103-v1.zip"
    assert "wikitext-103-v1.zip, MD5 9ddaacaf6af0710eda8c456decff7832" in corpus.remedy


@pytest.mark.parametrize("packed", [False, True])
def test_the_unpacked_text_is_taken_plain_or_packed(packed: bool, small: Path) -> None:
    folder = small / "mirror"
    folder.mkdir()
    for split in SPLITS:
        content = f"text of {split}\n".encode()
        name = f"wiki.{split}.tokens"
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(content) if packed else content)
    assert obtain("wikitext-2", small, "--text", folder) == 0
    assert (small / "raw" / "wiki.test.tokens").read_text() == "text of test\n"
    record = json.loads((small / "SOURCE.json").read_text())
    assert sorted(record) == sorted(path.name for path in folder.iterdir())


def test_an_incomplete_or_damaged_text_folder_is_named(small: Path, capsys: pytest.CaptureFixture) -> None:
    folder = small / "mirror"
    folder.mkdir()
    (folder / "wiki.train.tokens").write_text("a\n")
    assert obtain("wikitext-2", small, "--text", folder) == 1
    assert "neither wiki.valid.tokens nor wiki.valid.tokens.gz is there" in capsys.readouterr().err
    for damaged in (gzip.compress(b"some text\n" * 99)[:-9], b"no gzip"):
        (folder / "wiki.valid.tokens.gz").write_bytes(damaged)
        assert obtain("wikitext-2", small, "--text", folder) == 1
        assert "wiki.valid.tokens.gz is damaged" in capsys.readouterr().err
        assert not (small / "raw" / "wiki.valid.tokens").exists()


def test_an_unpacked_enwik8_is_taken_too(small: Path) -> None:
    (small / "copy").write_bytes(toy_data.running_text(toy_data.SIZE))
    assert obtain("enwik8", small, "--archive", small / "copy") == 0
    assert (small / "raw" / "enwik8").read_bytes() == toy_data.running_text(toy_data.SIZE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"<html>moved</html>", f"enwik8: expected {toy_data.SIZE} bytes, found 18. It came from "),
        (bytes(toy_data.SIZE), "enwik8: expected MD5 "),
    ],
)
def test_something_else_than_enwik8_is_refused(
    content: bytes, message: str, small: Path, capsys: pytest.CaptureFixture
) -> None:
    (small / "copy").write_bytes(content)
    assert obtain("enwik8", small, "--archive", small / "copy") == 1
    assert message in (error := capsys.readouterr().err)
    assert "a1fa5ffddb56f4953e226637dabbb36a" in error and "--archive FILE" in error
    assert not (small / "SOURCE.json").exists()


def test_archives_that_are_damaged_or_of_something_else(small: Path, capsys: pytest.CaptureFixture) -> None:
    content = bytearray((small / "enwik8.zip").read_bytes())
    content[200] ^= 1
    (small / "damaged.zip").write_bytes(content)
    assert obtain("enwik8", small, "--archive", small / "damaged.zip") == 1
    assert "damaged.zip cannot be unpacked: " in capsys.readouterr().err
    with zipfile.ZipFile(small / "other.zip", "w") as container:
        container.writestr("folder/readme", "nothing else")
    assert obtain("wikitext-2", small, "--archive", small / "other.zip", "--smoke") == 1
    assert "other.zip has no wiki.train.tokens; found readme" in capsys.readouterr().err
    assert obtain("enwik8", small, "--archive", small / "none.zip") == 1
    assert "none.zip: no such file. The file looked for is enwik8.zip" in capsys.readouterr().err


def test_a_dictionary_is_unpacked_and_its_package_recorded(small: Path, capsys: pytest.CaptureFixture) -> None:
    toy_data.write_corpus("gcide", small / "gcide.dict.dz")
    package = small / "dict-gcide_1_all.deb"
    package.write_bytes(b"package")
    options = ["--dictionary", small / "gcide.dict.dz", "--output", small / "gcide.txt", "--record", small / "S.json"]
    assert run("dictionary", *options, "--package", package, "--version", "0.48+nmu1") == 0
    assert (small / "gcide.txt").read_bytes() == toy_data.running_text(toy_data.SIZE)
    record = json.loads((small / "S.json").read_text())
    assert record[package.name] == {
        "version": "0.48+nmu1",
        "bytes": 7,
        "sha256": hashlib.sha256(b"package").hexdigest(),
    }
    assert sorted(record) == ["dict-gcide_1_all.deb", "gcide.dict.dz"]
    assert "dict-gcide_1_all.deb: version 0.48+nmu1, bytes 7" in capsys.readouterr().err
    (small / "gcide.dict.dz").write_bytes(b"no gzip")
    assert run("dictionary", *options) == 1
    assert "gcide.dict.dz is damaged" in capsys.readouterr().err
