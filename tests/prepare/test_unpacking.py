"""Packed files of a thousand to one are refused before they fill memory or disk, wherever such files are read."""

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fairseq_mega.lab.prepare import archives, text_files, unpacking
from fairseq_mega.lab.prepare.classification import cifar10
from fairseq_mega.lab.prepare.language_modeling.obtaining import take_text, unpack
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA

ZEROS = bytes(3 << 20)
REFUSED = r"has \d+ bytes and unpacks to \d+ or more, of which 1048576 are allowed"


@pytest.fixture(autouse=True)
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unpacking, "LEAST", 1 << 20)


@pytest.fixture
def bomb(tmp_path: Path) -> Path:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(ZEROS))
    assert path.stat().st_size * 900 < len(ZEROS)
    return path


def test_gzip(bomb: Path) -> None:
    with pytest.raises(OSError, match=REFUSED):
        archives.open_packed(bomb).read()
    text = bomb.with_name("letters.gz")
    text.write_bytes(gzip.compress(b"a" * len(ZEROS)))
    with pytest.raises(OSError, match=REFUSED):
        list(text_files.read_table(text, 3))
    with pytest.raises(OSError, match=REFUSED):
        archives.check_gzip(bomb)


def test_gzip_of_an_ordinary_text_is_read(tmp_path: Path) -> None:
    content = np.random.default_rng(1).bytes(2 << 20)
    path = tmp_path / "random.gz"
    path.write_bytes(gzip.compress(content, 1))
    assert archives.open_packed(path).read() == content
    with unpacking.open_gzip(path) as stream:
        assert b"".join(stream) == content


def test_what_a_tar_says_of_its_files_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        member = tarfile.TarInfo("zeros")
        member.size = len(ZEROS)
        tar.addfile(member, io.BytesIO(ZEROS))
    for wanted in ({"zeros"}, set()):
        with pytest.raises(OSError, match=REFUSED):
            list(archives.read_tar(path, wanted.__contains__))


def test_corpora_of_language_models(bomb: Path, tmp_path: Path) -> None:
    path = tmp_path / "enwik8.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as container:
        container.writestr("enwik8", ZEROS)
    out = tmp_path / "out"
    with pytest.raises(OSError, match=REFUSED):
        unpack(CORPORA["enwik8"], path, out)
    bomb.rename(tmp_path / "enwik8.gz")
    with pytest.raises(OSError, match=REFUSED):
        take_text(CORPORA["enwik8"], tmp_path, out)
    assert not (out / "enwik8").exists()


def test_numpy_arrays(tmp_path: Path) -> None:
    path = tmp_path / "images.npz"
    np.savez_compressed(path, x=np.zeros((3000, 32, 32), dtype=np.uint8), y=np.zeros(3000))
    with pytest.raises(OSError, match=REFUSED):
        cifar10._from_arrays(path)
