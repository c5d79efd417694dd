"""ImageNet out of invented archives: classes of the validation images, an interruption, damage, other archives."""

import re
import tarfile
from pathlib import Path
from typing import Callable, Dict

import pytest

from fairseq_mega.data.image_folder import ImageFolder
from fairseq_mega.lab.prepare import toy_data
from fairseq_mega.lab.prepare.classification import imagenet
from fairseq_mega.lab.prepare.download import digest_of
from tests.support.prepare_runs import prepare, refusal, source_of


@pytest.fixture
def archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "archives"
    toy_data.imagenet(folder)
    monkeypatch.setattr(imagenet, "ARCHIVES", {name: digest_of(folder / name, "md5") for name in imagenet.ARCHIVES})
    return folder


def test_a_folder_per_class(archives: Path, tmp_path: Path) -> None:
    prepare("imagenet", "--out", tmp_path / "out", "--archives", archives).succeeded()
    train, val = (ImageFolder(tmp_path / "out" / split) for split in ("train", "val"))
    assert train.classes == val.classes == [f"n{number:08}" for number in (1, 2, 3, 4)]
    for index in range(len(train)):
        assert train.path(index).name.startswith(train.classes[train.labels[index]])
        assert train[index].size == (50, 40)
    # the kit numbers the classes n4, n2, n3, n1, and gives the images 1 to 16 the numbers 1, 2, 3, 4, 1, ...
    found = {int(re.findall(r"\d{8}", val.path(index).name)[0]): int(val.labels[index]) for index in range(len(val))}
    assert [found[number] for number in range(1, 17)] == [3, 1, 2, 0] * 4
    source = source_of(tmp_path / "out")
    assert source["splits"] == {"train": {"examples": 48, "classes": 4}, "val": {"examples": 16, "classes": 4}}
    assert not (tmp_path / "out" / "unfinished").exists()


def test_what_was_unpacked_is_kept(archives: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_given: object) -> None:
        raise KeyboardInterrupt

    command = ["imagenet", "--out", tmp_path / "out", "--archives", archives]
    with monkeypatch.context() as patched:
        patched.setattr(imagenet, "unpack_validation", stop)
        assert prepare(*command).status == 130
    (kept,) = (tmp_path / "out").rglob("n00000002_0.JPEG")
    kept.write_bytes(b"of the first attempt")
    prepare(*command).succeeded()
    assert (tmp_path / "out" / "train" / "n00000002" / kept.name).read_bytes() == b"of the first attempt"
    assert len(ImageFolder(tmp_path / "out" / "train")) == 48


def repacked(path: Path, named: Callable[[int, str], str]) -> None:
    """Pack an archive anew, each member under the name that its place and its name give."""
    with tarfile.open(path) as archive:
        content = [(member.name, stream.read()) for member in archive if (stream := archive.extractfile(member))]
    with tarfile.open(path, "w") as archive:
        for place, (name, data) in enumerate(content):
            toy_data.add_file(archive, named(place, name), data)
    imagenet.ARCHIVES[path.name] = digest_of(path, "md5")


def classes_of_numbers(folder: Path) -> Dict[int, str]:
    """Return the class that each validation image lies in, by its number."""
    return {int(path.name.split("_")[2].partition(".")[0]): path.parent.name for path in folder.rglob("*.JPEG")}


@pytest.mark.parametrize(
    "named",
    [
        lambda place, name: f"n{place % 3}/{name}",  # a folder for each class, as they are sorted after unpacking
        lambda place, name: name.replace(".JPEG", f"_n{place % 4:08}.JPEG"),  # as on the Hugging Face hub
    ],
)
def test_the_number_in_its_name_gives_an_image_its_class(
    archives: Path, tmp_path: Path, named: Callable[[int, str], str]
) -> None:
    prepare("imagenet", "--out", tmp_path / "as published", "--archives", archives).succeeded()
    repacked(archives / "ILSVRC2012_img_val.tar", named)
    prepare("imagenet", "--out", tmp_path / "repacked", "--archives", archives).succeeded()
    want, got = (classes_of_numbers(tmp_path / out / "val") for out in ("as published", "repacked"))
    assert len(want) == 16 and got == want


def test_archives_with_other_checksums_are_refused(archives: Path, tmp_path: Path) -> None:
    (archives / "ILSVRC2012_img_val.tar").write_bytes(b"another")
    message = refusal("imagenet", "--out", tmp_path / "out", "--archives", archives)
    assert "ILSVRC2012_img_val.tar: expected MD5" in message and not (tmp_path / "out").exists()


def test_validation_images_have_numbers_once_each(archives: Path, tmp_path: Path) -> None:
    repacked(archives / "ILSVRC2012_img_val.tar", lambda place, old: "_val_00000001.JPEG" if place == 5 else old)
    message = refusal("imagenet", "--out", tmp_path / "out", "--archives", archives)
    assert "ILSVRC2012_img_val.tar" in message and not (tmp_path / "out" / "val").exists()
