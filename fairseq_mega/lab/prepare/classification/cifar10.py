"""Image: CIFAR-10 in grey, pixel by pixel (Long Range Arena, Tay et al., 2021)."""

import argparse
import io
import pickle
from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from fairseq_mega.compat.files.safe_globals import RefusedContents, safe_globals
from fairseq_mega.lab.prepare.archives import Archive, obtain, read_tar
from fairseq_mega.lab.prepare.checksums import Records, records_of
from fairseq_mega.lab.prepare.classification import toy_data
from fairseq_mega.lab.prepare.classification.image_output import ImageSplit, write_image_task
from fairseq_mega.lab.prepare.classification.subsets import limited, note_on_limit, random_split
from fairseq_mega.lab.prepare.dataset import ARENA, Dataset, Processed, Report, Scored
from fairseq_mega.lab.prepare.layouts import IMAGES
from fairseq_mega.lab.prepare.shared_options import add_archive, add_limit, add_number, add_path, at_most_one
from fairseq_mega.lab.prepare.work_folder import WorkFolder

ARCHIVE = Archive(
    "https://www.cs.toronto.edu/~kriz/cifar-10-python.tar.gz", {"md5": "c58f30108f718f92721af3b95e74349a"}
)
FOLDER = "cifar-10-batches-py"
BATCHES = {"train": [f"{FOLDER}/data_batch_{number}" for number in range(1, 6)], "test": [f"{FOLDER}/test_batch"]}
SIDE, CLASSES = 32, 10
Images = Tuple[np.ndarray, np.ndarray]

DETAILS = """\
45000, 5000 and 10000 images of 32 x 32 pixels in grey. The 50000 of training are split by torch's random permutation of
seed 42, as the authors do. Download 170 MB, result 220 MB, under a minute on one core. Labels 0 to 9 in CIFAR's order:
airplane, automobile, bird, cat, deer, dog, frog, horse, ship, truck."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Image."""
    add_archive(parser, ARCHIVE.name)
    for split in ("train", "test"):
        arrays = "grey images instead: .npz with x (n, 32, 32) uint8 and y (n,); a tenth of train becomes valid"
        add_path(parser, f"--npz-{split}", arrays)
    add_number(parser, "--side", SIDE, "height and width in pixels; smaller images are means of blocks")
    add_limit(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    at_most_one(args, "--archive", "--npz-train --npz-test")
    if SIDE % args.side:
        raise ValueError(f"--side is {args.side}, which does not divide {SIDE}: give 16, 8 or another divisor")


def grey(colour: np.ndarray) -> np.ndarray:
    """Return the luminance of (..., 3, H, W) uint8 as (..., H, W) uint8: 0.299 R + 0.587 G + 0.114 B.

    The rounded 16-bit fixed-point numbers equal PIL's conversion to mode "L" (ITU-R 601-2).
    """
    weights = (19595, 38470, 7471)  # of 65536
    total = np.full((*colour.shape[:-3], *colour.shape[-2:]), 0x8000, dtype=np.uint32)
    for channel, weight in enumerate(weights):
        total += colour[..., channel, :, :] * np.uint32(weight)
    return (total >> np.uint32(16)).astype(np.uint8)


class _ArrayUnpickler(pickle.Unpickler):
    """Reader of the archive's batches that accepts only numpy arrays and plain containers, and so runs no code."""

    def find_class(self, module: str, name: str) -> Any:
        for guard in safe_globals():
            if module.startswith("numpy") and (guard.__module__, guard.__qualname__) == (module, name):
                return guard
        raise pickle.UnpicklingError(f"it contains {module}.{name}, which is not an array")


def _from_archive(path: Path) -> Dict[str, Images]:
    names_of_batches = {name for names in BATCHES.values() for name in names}
    contents = dict(read_tar(path, names_of_batches.__contains__))
    found = {}
    for part, names in BATCHES.items():
        try:
            batches = [_ArrayUnpickler(io.BytesIO(contents[name]), encoding="bytes").load() for name in names]
            data = np.concatenate([np.asarray(batch[b"data"]) for batch in batches]).reshape(-1, 3, SIDE, SIDE)
            labels = np.concatenate([np.asarray(batch[b"labels"], dtype=np.int64) for batch in batches])
        except (pickle.UnpicklingError, RefusedContents, KeyError, TypeError) as error:
            raise ValueError(f"{path}: {part} cannot be read: {error}; get a new copy") from error
        found[part] = (grey(data), labels)
    return found


def shrunk(images: np.ndarray, side: int) -> np.ndarray:
    """Return images (n, 32, 32) uint8 as (n, side, side) uint8, each pixel the rounded mean of a block."""
    block = SIDE // side
    if block == 1:
        return images
    blocks = images.reshape(len(images), side, block, side, block)
    return np.rint(blocks.mean(axis=(2, 4))).astype(np.uint8)


def _from_arrays(path: Path) -> Images:
    with np.load(path, allow_pickle=False) as arrays:
        images, labels = arrays["x"], arrays["y"]
    if images.dtype != np.uint8 or images.shape[1:] != (SIDE, SIDE) or labels.shape != images.shape[:1]:
        raise ValueError(
            f"{path}: x uint8 (n, {SIDE}, {SIDE}) and y (n,) are needed, "
            f"found x {images.dtype} {images.shape} and y {labels.shape}"
        )
    if not set(labels.tolist()) <= set(range(CLASSES)):
        raise ValueError(f"{path}: labels from 0 to {CLASSES - 1} are needed, found {sorted(set(labels.tolist()))}")
    return images, labels.astype(np.int64)


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the images, make them grey, split and write them."""
    inputs: Records
    notes = ["grey by PIL's rule", "valid: the last tenth of torch's permutation (seed 42) of the training images"]
    if args.npz_train is not None:
        files = {"train": args.npz_train, "test": args.npz_test}
        inputs = records_of(files.values())
        found = {part: _from_arrays(path) for part, path in files.items()}
        origin = "arrays of grey images (--npz-train, --npz-test)"
        notes[0] = "grey as given"
    else:
        path, inputs = obtain(ARCHIVE, args.archive, work.raw)
        found = _from_archive(path)
        origin = f"CIFAR-10, {ARCHIVE.url}"
    size = len(found["train"][1])
    order = random_split(size, train=size - size // 10, valid=size // 10)
    order["test"] = np.arange(len(found["test"][1]))
    splits = {}
    for split, which in limited(order, args.limit).items():
        images, labels = found["test" if split == "test" else "train"]
        splits[split] = ImageSplit(shrunk(images[which], args.side), labels[which])
    if args.side != SIDE:
        notes.append(f"{args.side} x {args.side} pixels, means of blocks of {SIDE // args.side} x {SIDE // args.side}")
    statistics = write_image_task(work.output, splits)
    return Report(origin, statistics, inputs, notes + note_on_limit(args.limit))


DATASET = Dataset(
    "cifar10",
    ARENA,
    "CIFAR-10 in grey (the task Image)",
    DETAILS,
    add_options,
    check,
    make,
    toy_data.cifar10,
    layout=IMAGES,
    scored=Scored(10_000),
    processed=Processed("lra.zip", ("cifar", "image")),
)
