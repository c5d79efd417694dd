"""Images in a folder per class: what is read, in which order, and what is refused."""

import os
import pickle

import numpy as np
import pytest
from PIL import Image

from fairseq_mega.data.image_folder import ImageFolder, check_same_classes, split_folder
from tests.support import tiny_images


def test_classes_and_images_are_sorted(tmp_path):
    for name in ("b/2.png", "b/10.PNG", "a/é x.JPEG", "c/z.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        Image.new("RGB", (3, 2), (len(name), 0, 0)).save(tmp_path / name)
    (tmp_path / "a" / ".hidden.jpg").touch()
    (tmp_path / "a" / "notes.txt").touch()
    (tmp_path / ".cache").mkdir()
    (tmp_path / "list.csv").touch()
    folder = pickle.loads(pickle.dumps(ImageFolder(tmp_path)))
    assert folder.classes == ["a", "b", "c"] and folder.labels.tolist() == [0, 1, 1, 2] and len(folder) == 4
    found = [folder.path(index).relative_to(tmp_path).as_posix() for index in range(4)]
    assert found == ["a/é x.JPEG", "b/10.PNG", "b/2.png", "c/z.jpg"]
    assert folder[1].size == (3, 2) and np.array(folder[1])[0, 0].tolist() == [len("b/10.PNG"), 0, 0]


def test_no_file_is_looked_at(tmp_path, monkeypatch):
    """A stat for each of ImageNet's files would take minutes on a file system of a network."""
    tiny_images.write_files(tmp_path)
    asked = []

    def noting(function):
        def call(path, *args, **options):
            asked.append(str(path))
            return function(path, *args, **options)

        return call

    for name in ("stat", "lstat"):
        monkeypatch.setattr(os, name, noting(getattr(os, name)))
    monkeypatch.setattr("builtins.open", noting(open))
    assert len(ImageFolder(tmp_path / "train")) == 24
    assert not [path for path in asked if path.endswith(".JPEG")]


@pytest.mark.parametrize("mode", ["L", "CMYK", "RGB"])
def test_all_images_become_rgb(mode, tmp_path):
    (tmp_path / "a").mkdir()
    Image.new(mode, (4, 4)).save(tmp_path / "a" / "x.jpg")
    assert ImageFolder(tmp_path)[0].mode == "RGB"


@pytest.mark.parametrize("contents", ["truncated", "other", "empty"])
def test_damaged_images_are_named(contents, tmp_path):
    path = tiny_images.write_files(tmp_path) / "train" / "class1" / "001.JPEG"
    data = path.read_bytes()
    path.write_bytes({"truncated": data[: len(data) // 2], "other": b"<html>\xff" * 3, "empty": b""}[contents])
    images = ImageFolder(tmp_path / "train")
    with pytest.raises(ValueError, match=r"class1/001\.JPEG cannot be decoded \(.+\): replace or remove it"):
        images[images.labels.tolist().index(1)]


def test_folders_without_images(tmp_path):
    with pytest.raises(
        FileNotFoundError, match="none does not exist: give a folder with one folder of images per class"
    ):
        ImageFolder(tmp_path / "none")
    with pytest.raises(ValueError, match="holds no folders: give a folder with one folder of images per class"):
        ImageFolder(tmp_path)
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match=r"/a holds no images \(\.apng"):
        ImageFolder(tmp_path)


def test_other_classes_are_refused(tmp_path):
    for name in ("train/a", "train/b", "val/a", "val/c", "same/b", "same/a"):
        (tmp_path / name).mkdir(parents=True)
    check_same_classes(tmp_path / "train", tmp_path / "same")
    message = "train and .*val must have the same classes: only .*/train has b, only .*/val has c$"
    with pytest.raises(ValueError, match=message):
        check_same_classes(tmp_path / "train", tmp_path / "val")


def test_what_is_omitted_is_counted_aloud(tmp_path, caplog):
    """Endings in capitals are read; deeper folders, files without the ending of a picture and others are counted."""
    for name in ("a/1.PNG", "a/2.JFIF", "a/3.gif", "b/1.Jpg", "b/deeper/2.png", "b/deeper/3.png", "loose.png"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        picture = {".jfif": "JPEG", ".jpg": "JPEG", ".gif": "GIF"}.get(path.suffix.lower(), "PNG")
        Image.new("RGB", (3, 2)).save(path, picture)
    Image.new("RGB", (3, 2)).save(tmp_path / "a" / "no_ending", "PNG")
    (tmp_path / "a" / "4.HEIC").write_bytes(b"\0\0\0\x18ftypheic")
    for name in ("notes.txt", ".DS_Store"):
        (tmp_path / "a" / name).write_text("nothing")
    assert len(ImageFolder(tmp_path)) == 4
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}: 4 images; ignored: ") and "DS_Store" not in message
    assert (
        "1 without an ending" in message
        and "1 .heic" in message
        and "1 .txt" in message
        and "1 .png beside the folders" in message
    )
    assert "2 .png in deeper folders" in message


def test_what_lies_beside_the_classes_is_logged(tmp_path, caplog):
    """Classes that are packed or hidden vanish aloud."""
    for name in (
        "a/1.png",
        "b/1.png",
        "a/.2.png",
        "a/.thumb/1.png",
        "a/.DS_Store",
        ".net/1.png",
        ".net/x/2.png",
        ".cache/x",
        "bird.tar.gz",
        "noise.zip",
        "notes",
        "a/x.png/2.png",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert ImageFolder(tmp_path).classes == ["a", "b"]
    (message,) = caplog.messages
    for told in (
        ".gz beside",
        ".zip beside",
        "without an ending beside",
        "4 hidden .png",
        "1 .png in deeper folders",
    ):
        assert told in message
    assert ".cache" not in message and message.startswith(f"{tmp_path}: 2 images")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (
            ["b/.thumb/2.png", "b/.thumb/x/1.png", "b/.DS_Store"],
            "/b holds no images .* but 2 hidden .png:",
        ),
        (["b/2019/1.png", "b/2020/1.png"], "/b holds no images .* but 2 .png in deeper folders:"),
        (["b/1.heic", "b/2.heic", "b/x.txt"], "/b holds no images .* but 2 .heic, 1 .txt:"),
        (
            ["b/.hidden.png", "b/.DS_Store"],
            "/b holds no images .* but 1 hidden .png: the files of a class must lie directly",
        ),
    ],
)
def test_a_class_that_would_vanish_is_an_error(files, message, tmp_path):
    for name in ("a/1.png", *files):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (3, 2)).save(tmp_path / name, "PNG") if name.endswith(".png") else (tmp_path / name).touch()
    with pytest.raises(ValueError, match=message):
        ImageFolder(tmp_path)


def test_two_folders_for_validation_are_told(tmp_path, caplog):
    (tmp_path / "val").mkdir()
    assert split_folder(tmp_path, "valid") == tmp_path / "val" and not caplog.messages
    (tmp_path / "valid").mkdir()
    assert split_folder(tmp_path, "valid") == tmp_path / "valid"
    assert caplog.messages == [f"{tmp_path / 'valid'} is read, {tmp_path / 'val'} is ignored"]
