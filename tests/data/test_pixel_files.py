"""Images as text: every form is read, every fault is named with file and line, the cache follows the text."""

import os
import pickle

import numpy as np
import pytest

from fairseq_mega.data import pixel_files
from fairseq_mega.data.pixel_files import PixelFile, read_labels


def images(rows, columns, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, columns)).astype(np.uint8)


def write(path, pixels):
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in pixels.tolist()))
    return path


def test_every_value_and_any_blanks(tmp_path):
    path = tmp_path / "train.src"
    path.write_bytes(b"".join(b"%d\t %d \r\n" % (value, 255 - value) for value in range(256)))
    got = PixelFile(path)[np.arange(256)]
    assert got.dtype == np.uint8
    assert got.tolist() == [[value, 255 - value] for value in range(256)]


@pytest.mark.parametrize("block_bytes", [1, 7, 64, 1 << 20])
def test_blocks_of_any_size(block_bytes, tmp_path, monkeypatch):
    """Lines longer and shorter than a block; the last one without its newline."""
    monkeypatch.setattr(pixel_files, "BLOCK_BYTES", block_bytes)
    want = images(23, 5)
    path = write(tmp_path / "train.src", want)
    path.write_text(path.read_text().rstrip("\n"))
    got = PixelFile(path)
    assert got.shape == (23, 5) and len(got) == 23
    assert np.array_equal(got[np.arange(23)], want) and np.array_equal(got[7], want[7])
    assert np.array_equal(pickle.loads(pickle.dumps(got))[3], want[3])


def no_further_reading(monkeypatch):
    def fail(*unused):
        raise AssertionError("the text was read again")

    monkeypatch.setattr(pixel_files, "build_cache", fail)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_cache_is_used_and_renewed(elsewhere, tmp_path, monkeypatch):
    folder = tmp_path / "cache" if elsewhere else None
    path = write(tmp_path / "train.src", images(4, 6))
    PixelFile(path, folder)
    cache = pixel_files.cache_path(path, folder)
    assert cache.parent == (folder or tmp_path) and cache.stat().st_size == pixel_files.HEADER_BYTES + 24
    with monkeypatch.context() as patched:
        no_further_reading(patched)
        assert np.array_equal(PixelFile(path, folder)[2], images(4, 6)[2])

    changed = images(4, 6, seed=1)
    write(path, changed)
    os.utime(path, ns=(1, 1))  # the same size or not: the time tells
    assert np.array_equal(PixelFile(path, folder)[np.arange(4)], changed)
    cache.write_bytes(cache.read_bytes()[:-1])  # what a full disk leaves
    assert np.array_equal(PixelFile(path, folder)[3], changed[3])
    cache.write_bytes(b"no header")
    assert np.array_equal(PixelFile(path, folder)[3], changed[3])
    assert [item.name for item in cache.parent.glob("*.tmp")] == []


def test_caches_of_equal_names_are_kept_apart(tmp_path):
    for name, seed in (("a", 1), ("b", 2)):
        (tmp_path / name).mkdir()
        write(tmp_path / name / "train.src", images(3, 4, seed))
    a, b = (PixelFile(tmp_path / name / "train.src", tmp_path / "cache") for name in "ab")
    assert np.array_equal(a[0], images(3, 4, 1)[0]) and np.array_equal(b[0], images(3, 4, 2)[0])


@pytest.mark.parametrize(
    "line", ["1 2 256", "1 2 1000", "1 -2 3", "1 2.5 3", "1 2 x", "1 2 3 4", "1 2", "1 2 nan", "1e1 2 3", "1 2 \u0663"]
)
@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_faults_are_named(line, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(pixel_files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "train.src"
    path.write_text("1 2 3\n" * 4 + line + "\n" + "4 5 6\n" * 3, encoding="utf-8")
    with pytest.raises(ValueError, match=r"/train\.src[:,].* (row|line \d)"):
        PixelFile(path)
    assert os.listdir(tmp_path) == ["train.src"]


def test_missing_and_empty_files(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"train\.src does not exist: give the folder"):
        PixelFile(tmp_path / "train.src")
    (tmp_path / "train.src").write_text("")
    with pytest.raises(ValueError, match=r"train\.src is empty: give one image per line"):
        PixelFile(tmp_path / "train.src")


def test_unwritable_cache(tmp_path):
    path = write(tmp_path / "train.src", images(2, 2))
    (tmp_path / "occupied").write_text("")
    with pytest.raises(ValueError, match="cannot be written .*: give --pixel-cache a folder"):
        PixelFile(path, tmp_path / "occupied")


def test_labels(tmp_path):
    path = tmp_path / "train.label"
    path.write_text("3\n0 \n12")
    assert read_labels(path).tolist() == [3, 0, 12]
    for text, line in (("1\n\n2\n", 2), ("1\n2\n-1\n", 3), ("1.0\n", 1)):
        path.write_text(text)
        with pytest.raises(ValueError, match=rf"train\.label line {line}: .* is not a class"):
            read_labels(path)
    for content, line in (("1\nLöwe\n".encode("latin-1"), 2), ("1\n".encode("utf-16"), 1)):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=rf"train\.label line {line}: .* is not a class: .* in ASCII or UTF-8"):
            read_labels(path)
    path.write_bytes(b"\xef\xbb\xbf7\n1\n")
    assert read_labels(path).tolist() == [7, 1]
    with pytest.raises(FileNotFoundError, match=r"gone\.label does not exist"):
        read_labels(tmp_path / "gone.label")
