"""Own data of each kind with the same options: --train, and --valid and --test, which are taken whole."""

import wave
from pathlib import Path
from typing import Callable, Dict, Tuple

import numpy as np
import pytest
from PIL import Image

from tests.support.prepare_runs import prepare, refusal, source_of

COUNTS = {"train": 6, "valid": 2, "test": 3}  # of each label, or of documents


def write_table(path: Path, count: int, label: str) -> None:
    path.parent.mkdir(exist_ok=True)
    rows = [f"{name},{path.name} {name} {number}\n" for number in range(count) for name in ("good", label)]
    path.write_text("label,text\n" + "".join(rows))


def write_images(path: Path, count: int, label: str) -> None:
    for name in ("good", label):
        (path / name).mkdir(parents=True)
        for number in range(count):
            Image.new("RGB", (4, 4), (number, len(name), len(path.name))).save(path / name / f"{number}.png")


def write_sounds(path: Path, count: int, label: str) -> None:
    for name in ("good", label):
        (path / name).mkdir(parents=True)
        for number in range(count):
            with wave.open(str(path / name / f"{number}.wav"), "wb") as clip:
                clip.setparams((1, 2, 16000, 0, "NONE", ""))
                clip.writeframes(np.full(900 + number, len(name) + len(path.name), "<i2").tobytes())


def write_documents(path: Path, count: int, label: str) -> None:
    path.mkdir(parents=True)
    (path / "a.txt").write_text("\n\n".join(f"{path.name} is text number {number}" for number in range(count)))


KINDS: Dict[str, Tuple[Callable[[Path, int, str], None], Tuple[object, ...]]] = {
    "own-texts": (write_table, ()),
    "own-images": (write_images, ()),
    "recordings": (write_sounds, ()),
    "own-documents": (write_documents, ("--vocab-size", 300)),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("given", [("valid", "test"), ("test",), ()])
def test_splits_that_are_given_are_taken_whole(name: str, given: Tuple[str, ...], tmp_path: Path) -> None:
    write, options = KINDS[name]
    train = 40 if name == "own-documents" else COUNTS["train"]
    words = list(options)
    for split in ("train", *given):
        write(tmp_path / split, train if split == "train" else COUNTS[split], "bad")
        words += [f"--{split}", tmp_path / split]
    prepare(name, *words, "--out", tmp_path / "out").succeeded()
    labels = 1 if name == "own-documents" else 2
    found = {split: next(iter(counts.values())) for split, counts in source_of(tmp_path / "out")["splits"].items()}
    held_out = dict.fromkeys({"valid", "test"}.difference(given), 2 if name == "own-documents" else labels)
    whole = {split: labels * COUNTS[split] for split in given}
    assert found == {"train": labels * train - sum(held_out.values()), **held_out, **whole}


@pytest.mark.parametrize("name", ["own-texts", "own-images", "recordings"])
def test_a_label_that_train_lacks_is_refused(name: str, tmp_path: Path) -> None:
    write, _ = KINDS[name]
    write(tmp_path / "train", 6, "bad")
    write(tmp_path / "valid", 2, "worse")
    words = ("--train", tmp_path / "train", "--valid", tmp_path / "valid", "--out", tmp_path / "out")
    message = refusal(name, *words)
    assert str(tmp_path / "valid") in message and "worse" in message and not (tmp_path / "out").exists()
