"""Toy data in place of the Long Range Arena, of speech and of ImageNet, in the same files.

The function of a data set writes toy data to a folder, and returns the options of fairseq-mega-prepare that read them.
Scores on toy data are meaningless.
"""

import io
import tarfile
import wave
from pathlib import Path
from typing import Iterable, List

import numpy as np

TEXTS = ("good", "bad", "fine", "poor", "long", "short")
PAIRS = {"train": 32, "eval": 8, "test": 8}


def begun(folder: Path) -> np.random.Generator:
    """Create a folder, and return the random generator for its contents."""
    folder.mkdir(parents=True, exist_ok=True)
    return np.random.default_rng(1)


def text(draw: np.random.Generator) -> str:
    """A few words."""
    return " ".join(draw.choice(TEXTS, size=draw.integers(3, 9)))


def imdb(folder: Path) -> List[str]:
    """Tables of reviews: label, rating and text."""
    draw = begun(folder)
    for split, count in (("train", 32), ("test", 16)):
        rows = [f"{number % 2}\t{1 + 8 * (number % 2)}\t{text(draw)}\n" for number in range(count)]
        (folder / f"{split}.tsv").write_text("".join(rows))
    return ["--tsv-train", str(folder / "train.tsv"), "--tsv-test", str(folder / "test.tsv")]


def aan(folder: Path) -> List[str]:
    """Tables of pairs: label, two numbers and two texts."""
    draw = begun(folder)
    for split, count in PAIRS.items():
        rows = [f"{number % 2}.0\t1\t2\t{text(draw)}\t{text(draw)}\n" for number in range(count)]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(rows))
    return ["--tsv-dir", str(folder)]


def cifar10(folder: Path) -> List[str]:
    """Arrays of grey images."""
    draw = begun(folder)
    for split, count in (("train", 40), ("test", 10)):
        images = draw.integers(0, 256, (count, 32, 32), dtype=np.uint8)
        np.savez(folder / f"{split}.npz", x=images, y=np.arange(count) % 10)
    return ["--npz-train", str(folder / "train.npz"), "--npz-test", str(folder / "test.npz")]


def speech_commands(words: Iterable[str], folder: Path) -> List[str]:
    """A folder of recordings per word, one second each."""
    draw = begun(folder)
    for word in words:
        (folder / word).mkdir(exist_ok=True)
        for number in range(7):  # the smallest number with clips in every split
            with wave.open(str(folder / word / f"{number}.wav"), "wb") as clip:
                clip.setparams((1, 2, 16000, 0, "NONE", ""))
                clip.writeframes(draw.integers(-3000, 3000, 16000).astype("<i2").tobytes())
    return ["--dir", str(folder)]


def imagenet(folder: Path) -> List[str]:
    """Archives of colour images, and their development kit."""
    draw = begun(folder)
    from scipy.io import savemat

    classes = [f"n{number:08}" for number in (4, 2, 3, 1)]  # by their numbers in the kit, which are not sorted
    with tarfile.open(folder / "ILSVRC2012_img_train.tar", "w") as outer:
        for name in classes:
            inner = io.BytesIO()
            with tarfile.open(fileobj=inner, mode="w") as archive:
                for number in range(12):
                    add_file(archive, f"{name}_{number}.JPEG", jpeg(draw))
            add_file(outer, f"{name}.tar", inner.getvalue())
    truth = [1 + number % len(classes) for number in range(16)]
    with tarfile.open(folder / "ILSVRC2012_img_val.tar", "w") as archive:
        for number in reversed(range(len(truth))):
            add_file(archive, f"ILSVRC2012_val_{number + 1:08}.JPEG", jpeg(draw))
    numbered = list(enumerate([*classes, "n99999999"], 1))  # the last is an inner node, without images
    synsets = np.array(numbered, dtype=[("ILSVRC2012_ID", "f8"), ("WNID", "O")])
    meta = io.BytesIO()
    savemat(meta, {"synsets": synsets[:, None]})
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as archive:
        lines = "".join(f"{number}\n" for number in truth).encode()
        for name, content in (("meta.mat", meta.getvalue()), ("ILSVRC2012_validation_ground_truth.txt", lines)):
            add_file(archive, f"ILSVRC2012_devkit_t12/data/{name}", content)
    return ["--archives", str(folder)]


def jpeg(draw: np.random.Generator) -> bytes:
    """An image in colour, wider than high."""
    from PIL import Image

    packed = io.BytesIO()
    Image.fromarray(draw.integers(0, 256, (40, 50, 3), dtype=np.uint8)).save(packed, "JPEG")
    return packed.getvalue()


def add_file(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    """Put a file into an archive."""
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
