"""Images of one's own: a tenth of each class held out, links or copies of the files, and folders that will not do."""

import errno
import os
import re
from pathlib import Path
from typing import Dict, List

import pytest
from PIL import Image

from fairseq_mega.data.image_folder import ImageFolder
from tests.support.prepare_runs import prepare, refusal, source_of

COUNTS = {"a cat": 20, "dog": 5}


@pytest.fixture
def images(tmp_path: Path) -> Path:
    folder = tmp_path / "my images"
    write(folder, [f"{label}/{number}.png" for label, count in COUNTS.items() for number in range(count)])
    return folder


def write(folder: Path, files: List[str]) -> None:
    """Write images of different colours, and other files with their names as text."""
    for number, file in enumerate(files):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if file.endswith(".png"):
            Image.new("RGB", (4, 4), (number, 100, 200)).save(folder / file)
        else:
            (folder / file).write_text(file)


def files_of(out: Path) -> Dict[str, List[str]]:
    found = {split: ImageFolder(out / split) for split in ("train", "valid", "test")}
    return {
        split: [images.path(number).relative_to(out / split).as_posix() for number in range(len(images))]
        for split, images in found.items()
    }


@pytest.mark.parametrize("linked", [True, False])
def test_a_tenth_of_each_class_is_held_out(
    linked: bool, images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    write(images, ["dog/notes.txt"])
    command = ["own-images", "--dir", images, "--out", tmp_path / "out"]
    run = prepare(*command).succeeded()
    assert "omitted: 1 .txt" in run.output
    found = files_of(tmp_path / "out")
    for label, count in COUNTS.items():
        held_out = max(1, count // 10)
        counts = [sum(file.startswith(f"{label}/") for file in files) for files in found.values()]
        assert counts == [count - 2 * held_out, held_out, held_out]
    everything = sorted(file for files in found.values() for file in files)
    assert everything == sorted(f"{label}/{number}.png" for label, count in COUNTS.items() for number in range(count))
    for split, files in found.items():
        for file in files:
            kept = tmp_path / "out" / split / file
            assert kept.read_bytes() == (images / file).read_bytes()
            assert os.path.samefile(kept, images / file) is linked
    assert source_of(tmp_path / "out")["splits"]["valid"] == {"examples": 3, "labels": {"a cat": 2, "dog": 1}}
    assert "nothing to do" in prepare(*command).succeeded().output


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["train/1.png", "Test/2.png"], r"its folders Test, train are parts of a data set, not labels"),
        (["cat/1.png"], r"two folders of images LABEL/FILE at least are needed, found \['cat'\]"),
        (["cat/1.png", "dog/1.txt"], "dog holds no images"),
        (["cat/1.png", "cat/2.png", "dog/1.png"], "labels with too few examples: 'cat' has 2, 'dog' has 1; 3 of each"),
    ],
)
def test_folders_that_will_not_do(files: List[str], message: str, tmp_path: Path) -> None:
    write(tmp_path / "images", files)
    assert re.search(message, refusal("own-images", "--dir", tmp_path / "images", "--out", tmp_path / "out"))
