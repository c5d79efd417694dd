"""Grey images with labels in the layout of the published code: Image, Pathfinder and Path-X of the Long Range Arena
(Tay et al., 2021).

``input/SPLIT.src`` has one image per line, its pixels 0..255 row by row, ``label/SPLIT.label`` one label per line.
"""

import argparse
import hashlib
import pickle
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, NamedTuple, Tuple

import numpy as np
import torch

from fairseq_mega.lab.prepare.archives import HARD, RELEASED, Archive, Part, obtain, read_tar, released_files
from fairseq_mega.lab.prepare.dataset import Dataset, Report, Scored, counted
from fairseq_mega.lab.prepare.download import Records
from fairseq_mega.lab.prepare.generators.pathfinder import RULES, generate_pathfinder
from fairseq_mega.lab.prepare.layouts import IMAGES
from fairseq_mega.lab.prepare.options import (
    LIMIT,
    SEED,
    WORKERS,
    archive,
    kept,
    note_on_limit,
    number_option,
    seed,
)
from fairseq_mega.lab.prepare.progress import SPLITS, follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder

_NUMBERS = [b"%d" % value for value in range(256)]


class ImageSplit(NamedTuple):
    """The images of a split in order, each of dtype uint8 and any shape, and their labels (n,)."""

    images: Iterable[np.ndarray]
    labels: np.ndarray


def random_split(size: int, train: int, valid: int) -> Dict[str, np.ndarray]:
    """Return the indices (n,) int64 of the examples of each split in the drawn order; the rest is test.

    They are those of torch's random_split with a generator of SEED.
    """
    order = torch.randperm(size, generator=torch.Generator().manual_seed(SEED)).numpy()
    return dict(zip(SPLITS, np.split(order, [train, train + valid])))


def write_image_task(folder: Path, splits: Dict[str, ImageSplit]) -> Dict[str, Dict[str, Any]]:
    """Write all splits below ``folder`` and return the counts of each."""
    for name in ("input", "label"):
        (folder / name).mkdir(parents=True)
    statistics = {}
    for split, (images, labels) in splits.items():
        pixels = 0
        with open(folder / "input" / f"{split}.src", "wb") as stream:
            for image in follow(images, split, "images", len(labels)):
                stream.write(b" ".join(map(_NUMBERS.__getitem__, image.tobytes())) + b"\n")
                pixels = image.size
        (folder / "label" / f"{split}.label").write_text("".join(f"{label}\n" for label in labels))
        statistics[split] = {**counted(map(str, labels)), "pixels": pixels}
        print_line(f"{split}: {len(labels)} images of {pixels} pixels")
    return statistics


# --- Image: CIFAR-10 in grey, pixel by pixel

CIFAR_ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", {"md5": "c58f30108f718f92721af3b95e74349a"}
)
_BATCH = "cifar-10-batches-py/{}".format
BATCHES = {"train": [_BATCH(f"data_batch_{number}") for number in range(1, 6)], "test": [_BATCH("test_batch")]}
SIDE = 32

CIFAR10 = """\
45000, 5000 and 10000 images of 32 x 32 pixels in grey. The 50000 of training are split by torch's random permutation of
seed 42, as the authors do. Download 170 MB, result 220 MB, under a minute on one core. Labels 0 to 9 in CIFAR's order:
airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck."""


def grey(colour: np.ndarray) -> np.ndarray:
    """Return the luminance of (..., 3, H, W) uint8 as (..., H, W) uint8: 0.299 R + 0.587 G + 0.114 B.

    The rounded 16-bit fixed-point numbers equal PIL's conversion to mode "L" (ITU-R 601-2).
    """
    weights = (19595, 38470, 7471)  # of 65536
    total = np.full((*colour.shape[:-3], *colour.shape[-2:]), 0x8000, dtype=np.uint32)
    for channel, weight in enumerate(weights):
        total += weight * colour[..., channel, :, :].astype(np.uint32)
    return (total >> 16).astype(np.uint8)


def _cifar_of_archive(path: Path) -> Dict[str, Tuple[np.ndarray, np.ndarray]]:
    """Return images and labels of both parts; the archive, which is pickled, is the published one by its checksum."""
    contents = dict(read_tar(path, {name for names in BATCHES.values() for name in names}.__contains__))
    found = {}
    for part, names in BATCHES.items():
        batches = [pickle.loads(contents[name], encoding="bytes") for name in names]
        data = np.concatenate([batch[b"data"] for batch in batches]).reshape(-1, 3, SIDE, SIDE)
        found[part] = (grey(data), np.concatenate([np.asarray(batch[b"labels"], dtype=np.int64) for batch in batches]))
    return found


def shrunk(images: np.ndarray, side: int) -> np.ndarray:
    """Return images (n, 32, 32) uint8 as (n, side, side) uint8, each pixel the rounded mean of a block."""
    block = SIDE // side
    blocks = images.reshape(len(images), side, block, side, block)
    return images if block == 1 else np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def make_cifar10(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the images, make them grey, split and write them."""
    if SIDE % args.side:
        raise ValueError(f"--side is {args.side}, which does not divide {SIDE}: give 16, 8 or another divisor")
    notes = ["grey by PIL's rule", "valid: the last tenth of torch's permutation (seed 42) of the training images"]
    path, inputs = obtain(CIFAR_ARCHIVE, args.archive, work.raw, not args.smoke)
    found = _cifar_of_archive(path)
    size = len(found["train"][1])
    order = random_split(size, train=size - size // 10, valid=size // 10)
    order["test"] = np.arange(len(found["test"][1]))
    splits = {}
    for split, which in order.items():
        images, labels = found["test" if split == "test" else "train"]
        which = which[kept(split, len(which), args.limit)]
        splits[split] = ImageSplit(shrunk(images[which], args.side), labels[which])
    if args.side != SIDE:
        notes.append(f"{args.side} x {args.side} pixels, means of blocks of {SIDE // args.side} x {SIDE // args.side}")
    statistics = write_image_task(work.output, splits)
    return Report(f"CIFAR-10, {CIFAR_ARCHIVE.url}", statistics, inputs, notes + note_on_limit(args.limit))


# --- Pathfinder and Path-X: are the two marked ends on the same dashed contour?

PARTS = {size: Part(f"pathfinder{size}") for size in RULES}
LEAST_IMAGES = 10  # a tenth of this number is one image

PATHFINDER = """\
160000, 20000 and 20000 images of {size} x {size} pixels (of --count: 80, 10 and 10 %), two classes. Without --released
they are generated by the rules of the benchmark's hard variant; an interrupted run continues where it stopped, and the
rate is printed. Every image depends on the seed and its number only.
{times}
With --released the released images are read, which needs Pillow, and split by torch's random
permutation of seed 42 after sorting the metadata by number, as the authors do."""
TIMES = {
    32: "200000 images take 0.5 GB of text, 0.2 GB more while they are made, and about 45 minutes on 2 cores.",
    128: "200000 images take 7 GB of text, 3.3 GB more while they are made, and about five hours on 2 cores.",
}


class Contours(NamedTuple):
    """Images by number, (size, size) or (size**2,) uint8, their labels (n,) int64, and the entry in card.json."""

    image: Callable[[int], np.ndarray]
    labels: np.ndarray
    inputs: Records


def released_contours(folder: Path, size: int) -> Contours:
    """Return the released images in the order of the metadata files' numbers: PNG files, and tables of labels."""
    from PIL import Image

    tables = sorted((folder / "metadata").glob("*.npy"), key=lambda path: int(path.stem))
    content = b"".join(table.read_bytes() for table in tables)  # text, despite the name
    rows = [line.split() for line in content.decode("utf-8").splitlines() if line.strip()]

    def image(number: int) -> np.ndarray:
        with Image.open(folder.joinpath(*rows[number][:2])) as picture:
            return np.array(picture.convert("L")).reshape(size, size)

    record = {"images": len(rows), "sha256": hashlib.sha256(content).hexdigest()}
    return Contours(image, np.array([int(row[3]) for row in rows], dtype=np.int64), {"metadata": record})


def drawn_contours(size: int, args: argparse.Namespace, work: WorkFolder) -> Contours:
    """Draw images to a file, each followed by its label, after those of an interrupted run; they stay on the disk."""
    path, record = work.parts / "images", size**2 + 1  # bytes
    done = path.stat().st_size // record if path.exists() else 0
    if done < args.count:
        if done:
            print_line(f"{done} images were drawn before; continuing with number {done}")
        pairs = generate_pathfinder(RULES[size], done, args.count, args.seed, workers=args.workers)
        with open(path, "ab") as stream:
            stream.truncate(done * record)
            for image, label in follow(pairs, "drawing", "images", args.count, done):
                stream.write(image.tobytes() + bytes([label]))
        print_line(f"{args.count - done} images drawn with seed {args.seed}")
    records = np.memmap(path, dtype=np.uint8, mode="r", shape=(args.count, record))
    return Contours(records[:, :-1].__getitem__, records[:, -1].astype(np.int64), {})


def make_pathfinder(size: int, args: argparse.Namespace, work: WorkFolder) -> Report:
    """Draw the images, or read the released ones, and write them."""
    if not args.released:
        found, notes = drawn_contours(size, args, work), []
        origin = f"generated by the rules of Long Range Arena with seed {args.seed}"
    else:
        folder = released_files(args, work, PARTS[size]) / HARD
        found, origin = released_contours(folder, size), "the released images of Long Range Arena"
        notes = ["images in the order of the metadata's file numbers, split with torch's generator of seed 42"]
    splits, count = {}, len(found.labels)
    for split, which in random_split(count, train=count * 8 // 10, valid=count // 10).items():
        splits[split] = ImageSplit(map(found.image, which.tolist()), found.labels[which])
    return Report(origin, write_image_task(work.output, splits), found.inputs, notes)


def _pathfinder(name: str, size: int) -> Dataset:
    return Dataset(
        name,
        PATHFINDER.format(size=size, times=TIMES[size]),
        (
            number_option("--count", 200_000, "number of images", LEAST_IMAGES),
            seed("images"),
            WORKERS,
            *RELEASED,
        ),
        partial(make_pathfinder, size),
        layout=IMAGES,
        scored=Scored(20_000),
    )


DATASETS = (
    Dataset(
        "cifar10",
        CIFAR10,
        (
            archive(CIFAR_ARCHIVE.name),
            number_option("--side", SIDE, "height and width in pixels; smaller images are means of blocks"),
            LIMIT,
        ),
        make_cifar10,
        layout=IMAGES,
        scored=Scored(10_000),
    ),
    _pathfinder("pathfinder32", 32),
    _pathfinder("pathx", 128),
)
