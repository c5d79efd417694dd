"""Labelled examples of one's own: splits held out or given, tables of texts, folders of images and of recordings."""

import errno
import gzip
import os
import re
import wave
from pathlib import Path
from typing import Callable, Dict, List, Tuple

import numpy as np
import pytest
import torch
from PIL import Image

from fairseq_mega.data.image_folder import ImageFolder
from fairseq_mega.lab.prepare.classification.own import read_texts
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
    path.write_text("\n\n".join(f"{path.name} is text number {number}" for number in range(count)))


KINDS: Dict[str, Tuple[Callable[[Path, int, str], None], Tuple[object, ...]]] = {
    "own-texts": (write_table, ()),
    "own-images": (write_images, ()),
    "recordings": (write_sounds, ()),
    "own-documents": (write_documents, ("--vocab-size", 300)),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("given", [("test",), ()])
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


ROWS = [("good", f"a fine, {word}; film") for word in ["one", "two", "three"]]
ROWS += [("bad", f'a poor "{word}" film') for word in ["one", "two", "three"]]
HEADER = "label\ttext\n"


def tsv(rows: List[Tuple[str, str]], header: str = HEADER) -> str:
    return header + "".join(f"{label}\t{text}\n" for label, text in rows)


def comma(header: str = "text,label\n") -> str:
    """CSV, texts first."""
    return header + "".join('"' + text.replace('"', '""') + f'",{label}\n' for label, text in ROWS)


TABLES: Dict[str, Tuple[str, bytes]] = {
    "more columns": ("own.TSV", ("id\tlabel\ttext\n" + "".join(f"7\t{a}\t{b}\n" for a, b in ROWS)).encode()),
    "with a mark and CR LF": ("own.tsv", tsv(ROWS).replace("\n", "\r\n").encode("utf-8-sig")),
    "CSV": ("own.csv", comma().encode()),
    "gzip": ("own.tsv.gz", gzip.compress(tsv(ROWS).encode())),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(name: str, tmp_path: Path) -> None:
    file, content = TABLES[name]
    (tmp_path / file).write_bytes(content)
    assert read_texts(tmp_path / file) == [(text.encode(), label) for label, text in ROWS]


def test_fields_of_several_lines_and_quotes_of_tsv(tmp_path: Path) -> None:
    """In CSV a quoted field may have lines; in a tab-separated table quotes are characters; labels stay as written."""
    (tmp_path / "own.csv").write_text('label,text\nNA,"one\ntwo"\n007,three\n')
    assert read_texts(tmp_path / "own.csv") == [(b"one\ntwo", "NA"), (b"three", "007")]
    (tmp_path / "own.tsv").write_text('label\ttext\ngood\t"one\nbad\t"two" or three\n')
    assert read_texts(tmp_path / "own.tsv") == [(b'"one', "good"), (b'"two" or three', "bad")]


REFUSED: Dict[str, Tuple[str, bytes, str]] = {
    "other names": ("own.tsv", tsv(ROWS, "Stimmung\tSatz\n").encode(), "line 1 .*label"),
    "an open quote": ("own.csv", comma().encode() + b'"never closed,good\n', "line 7 is not a row"),
    "a text of Latin-1": ("own.tsv", tsv([*ROWS, ("bad", "schön")]).encode("latin-1"), "line 8: "),
    "a token of fairseq's": ("own.tsv", tsv([*ROWS, ("</s>", "a film")]).encode(), "line 8 .*'</s>'"),
    "no text": ("own.tsv", tsv([*ROWS, ("bad", " "), ("good", "")]).encode(), "line 8 .*text"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_table_is_named(name: str, tmp_path: Path) -> None:
    file, content, message = REFUSED[name]
    (tmp_path / file).write_bytes(content)
    told = refusal("own-texts", "--train", tmp_path / file, "--out", tmp_path / "out")
    assert f"{tmp_path / file}" in told and re.search(message, told) and not (tmp_path / "out").exists()


@pytest.mark.parametrize("linked", [True, False])
def test_a_tenth_of_the_images_of_each_class_is_held_out(
    linked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_paths: object) -> None:
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    if not linked:
        monkeypatch.setattr(os, "link", refuse)
    images, out = tmp_path / "my images", tmp_path / "out"
    write_images(images, 20, "a cat")
    (images / "good" / "notes.txt").write_text("x")
    assert "omitted: 1 .txt" in prepare("own-images", "--dir", images, "--out", out).succeeded().output
    found = {split: ImageFolder(out / split) for split in ("train", "valid", "test")}
    assert {split: np.bincount(f.labels).tolist() for split, f in found.items()} == {
        "train": [16, 16],
        "valid": [2, 2],
        "test": [2, 2],
    }
    files = [path.relative_to(out) for path in out.rglob("*.png")]
    assert len({Path(*file.parts[1:]) for file in files}) == len(files) == 40
    for file in files:
        source = images.joinpath(*file.parts[1:])
        assert (out / file).read_bytes() == source.read_bytes()
        assert os.path.samefile(out / file, source) is linked


@pytest.mark.parametrize("name", ["own-images", "recordings"])
def test_a_label_does_not_vanish(name: str, tmp_path: Path) -> None:
    KINDS[name][0](tmp_path / "empty", 3, "bad")
    for file in (tmp_path / "empty" / "bad").iterdir():
        file.rename(file.with_suffix(".txt"))
    assert str(tmp_path / "empty" / "bad") in refusal(name, "--dir", tmp_path / "empty", "--out", tmp_path / "out")


def test_labels_of_recordings_are_those_of_their_clips(tmp_path: Path) -> None:
    """Clips of "good" are louder than those of "bad", and the labels are sorted."""
    write_sounds(tmp_path / "train", 9, "bad")
    prepare("recordings", "--train", tmp_path / "train", "--out", tmp_path / "out").succeeded()
    for split in ("train", "val", "test"):
        clips, labels = (
            torch.load(tmp_path / "out" / "processed_data" / "raw" / f"{split}_{kind}.pt") for kind in "Xy"
        )
        assert clips[labels == 1, 0].min() > clips[labels == 0, 0].max()
