"""Pixels in files: every form is read, faults are named with their file, the cache follows the text."""

import os
import pickle

import numpy as np
import pytest

from fairseq_mega.data import pixel_files
from fairseq_mega.data.classified import read_labels
from fairseq_mega.data.pixel_files import map_images, map_pixels


def images(rows, columns, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, columns)).astype(np.uint8)


def write(path, pixels):
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in pixels.tolist()))
    return path


@pytest.mark.parametrize("block_bytes", [1, 64])
def test_blocks_of_any_size(block_bytes, tmp_path, monkeypatch):
    """Lines longer and shorter than a block; the last one without its newline."""
    monkeypatch.setattr(pixel_files, "BLOCK_BYTES", block_bytes)
    want = images(60, 5)
    want[0, :2] = 0, 255
    path = write(tmp_path / "train.src", want)
    path.write_text(path.read_text().rstrip("\n"))
    got = map_pixels(path)
    assert got.shape == (60, 5) and len(got) == 60 and got[0].dtype == np.uint8
    assert np.array_equal(got[np.arange(60)], want) and np.array_equal(got[7], want[7])


def test_workers_map_the_file_themselves(tmp_path):
    np.save(tmp_path / "x.npy", np.full((1000, 8, 8, 3), 7, np.uint8))
    pickled = pickle.dumps(map_images(tmp_path / "x.npy"))
    assert len(pickled) < 1000 and np.array_equal(pickle.loads(pickled)[3], np.full((8, 8, 3), 7))


@pytest.mark.parametrize("elsewhere", [False, True])
def test_cache_is_used_and_renewed(elsewhere, tmp_path, monkeypatch):
    folder = tmp_path / "cache" if elsewhere else None
    path = write(tmp_path / "train.src", images(4, 6))
    map_pixels(path, folder)
    with monkeypatch.context() as patched:
        patched.setattr(pixel_files, "write_cache", lambda *_: pytest.fail("the text was read again"))
        assert np.array_equal(map_pixels(path, folder)[2], images(4, 6)[2])
    changed = images(4, 6, seed=1)
    write(path, changed)
    os.utime(path, ns=(1, 1))  # the same size or not: the time tells
    assert np.array_equal(map_pixels(path, folder)[np.arange(4)], changed)
    if folder is not None:  # texts of one name
        other = write(tmp_path / "cache" / "train.src", changed)
        os.utime(other, ns=(1, 1))
        assert len({*folder.glob("*.uint8")}) == 2 and map_pixels(other, folder) and len({*folder.glob("*.uint8")}) == 3


@pytest.mark.parametrize("line", ["1 2 256", "1 -2 3", "1 2.5 3", "1 2 3 4", "1 2", ""])
@pytest.mark.parametrize("block_bytes", [7, 1 << 20])
def test_faults_are_named(line, block_bytes, tmp_path, monkeypatch):
    monkeypatch.setattr(pixel_files, "BLOCK_BYTES", block_bytes)
    path = tmp_path / "train.src"
    path.write_text("1 2 3\n" * 4 + line + "\n" + "4 5 6\n" * 3)
    with pytest.raises(ValueError, match=r"/train\.src, in the lines from [15] on"):
        map_pixels(path)
    assert os.listdir(tmp_path) == ["train.src"]


@pytest.mark.parametrize("array", [np.zeros((9, 8, 8), np.uint8), np.zeros((9, 8, 8, 3))])
def test_other_arrays_are_refused(array, tmp_path):
    np.save(tmp_path / "test.npy", array)
    with pytest.raises(ValueError):
        map_images(tmp_path / "test.npy")


def test_labels(tmp_path):
    path = tmp_path / "train.label"
    path.write_text("3\n0 \n12")
    assert read_labels(path).tolist() == [3, 0, 12]
    path.write_text("1\n\n2\n")
    with pytest.raises(ValueError):
        read_labels(path)
