"""The user's images: a folder of image files for each label, divided into train, valid and test."""

import argparse
import hashlib
import os
import shutil
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Sequence

import numpy as np

from fairseq_mega.data.class_folders import check_labels, class_files, class_names
from fairseq_mega.data.image_files import PICTURES as FILES
from fairseq_mega.data.image_files import read_image
from fairseq_mega.data.image_folder import split_folder
from fairseq_mega.lab.prepare.classification.subsets import labelled_files, say_copies, stratified_split
from fairseq_mega.lab.prepare.dataset import PICTURES, Dataset, Report
from fairseq_mega.lab.prepare.layouts import TRAIN_AND_VALID
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.work_folder import WorkFolder

HELD_OUT = {"valid": 0.1, "test": 0.1}
MOST = 3  # problems in a message

DETAILS = """\
--dir holds a folder per label, DIR/LABEL/FILE. Writes train/LABEL/FILE, valid/LABEL/FILE and test/LABEL/FILE for --task
image-classification: a tenth of the images of every label, at least one, is held out for valid, and as many for test.
The files are not changed: the result contains hard links to them, which need no MB of their own, or copies if the file
system has no hard links. Other files in the folders are counted and left out; a label without images is an error,
and so is an image that cannot be decoded, a TIFF, or one of more than 8 bits. Damage within a picture may go unseen.
A folder that has train/ and valid/ already needs no preparation."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own images."""
    parser.add_argument("--dir", type=Path, required=True, metavar="DIR", help="folder with the images as LABEL/FILE")


def check(args: argparse.Namespace) -> None:
    """Refuse a folder that is divided already, and a folder without images of two labels."""
    if all(split_folder(args.dir, split).is_dir() for split in ("train", "valid")):
        raise ValueError(
            f"--dir {args.dir} has train/ and {split_folder(args.dir, 'valid').name}/ already: give it to "
            f"fairseq-mega-train --task image-classification as it is"
        )
    if args.dir.resolve() in (args.out.resolve(), *args.out.resolve().parents):
        raise ValueError(f"--out {args.out} lies in --dir {args.dir}, whose folders are labels: give another one")
    check_labels(args.dir, class_names(args.dir))
    class_files(args.dir, FILES)


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Divide the images of each label, and link or copy them."""
    files = labelled_files(args.dir, FILES)
    labels = [*files]
    images = [Path(label, name) for label in labels for name in files[label]]
    numbers = np.repeat(np.arange(len(labels)), [len(files[label]) for label in labels])
    rows = stratified_split(numbers, HELD_OUT, labels)
    check_images([args.dir / image for image in images])
    contents = [(hashlib.sha256((args.dir / image).read_bytes()).digest(), image.parent.name) for image in images]
    say_copies({split: [contents[row] for row in which] for split, which in rows.items()}, "images")
    counted: Dict[str, Dict[str, Any]] = {}
    for split, which in rows.items():
        for row in which:
            link_or_copy(args.dir / images[row], work.output / split / images[row])
        counts = Counter(images[row].parent.name for row in which)
        counted[split] = {"examples": len(which), "labels": {label: counts[label] for label in labels}}
        say(f"{split}: {len(which):,} images of {len(labels)} labels")
    notes = ["valid and test: a tenth of every label each, drawn with seed 42"]
    return Report(f"own images, {args.dir.resolve()}", counted, {}, notes)


def check_images(paths: Sequence[Path]) -> None:
    """Raise a ValueError that names images which cannot be read and would stop the training."""
    problems = []
    for path in Progress("reading", "images", len(paths)).follow(paths):
        try:
            read_image(path)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        more = f" (and {len(problems) - MOST:,} more)" if problems[MOST:] else ""
        raise ValueError("; ".join(problems[:MOST]) + more)


def link_or_copy(source: Path, target: Path) -> None:
    """Make a hard link to a file, or a copy if the file system does not support the link."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source.resolve(), target)
    except OSError:
        shutil.copyfile(source, target)


DATASET = Dataset(
    "own-images", PICTURES, "images of your own", DETAILS, add_options, check, make, layout=TRAIN_AND_VALID, own=True
)
