"""ImageNet (ILSVRC-2012): its archives unpacked to a folder per class (Russakovsky et al., 2015)."""

import argparse
import io
import re
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, Tuple

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.lab.prepare.archives import naming_damage, read_tar
from fairseq_mega.lab.prepare.dataset import Dataset, Report, Scored
from fairseq_mega.lab.prepare.download import DownloadError, Records, digest_of
from fairseq_mega.lab.prepare.layouts import TRAIN_AND_VALID
from fairseq_mega.lab.prepare.options import folder_option
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream

CLASSES = 1000
IMAGES = {"train": 1_281_167, "valid": 50_000}
NUMBERED = re.compile(r"_val_(\d+)")  # number in the name of a validation image
TRAIN, VAL, DEVKIT = "ILSVRC2012_img_train.tar", "ILSVRC2012_img_val.tar", "ILSVRC2012_devkit_t12.tar.gz"
ARCHIVES = {  # of image-net.org, with their MD5 from torchvision
    TRAIN: "1d675b47d978889d74fa0da5fadfb00e",
    VAL: "29b22e2961454d5413ddabcf34fc5622",
    DEVKIT: "fa75699e90414af021442c21a62c3abf",
}
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"  # in the development kit
WHERE = "https://image-net.org/download provides them to registered researchers"

DETAILS = f"""\
{IMAGES["train"]:,} images to train on and {IMAGES["valid"]:,} to validate with, of {CLASSES:,} classes:
train/CLASS/FILE and val/CLASS/FILE for --task image-classification. The archives are not downloaded:
{WHERE}.
{", ".join(ARCHIVES)} are read where they are,
the result has 155 GB. An interrupted run continues with the missing classes. A folder that is already unpacked needs
no preparation."""


def classes_of_validation(devkit: Path) -> List[str]:
    """Return the WordNet ID of each validation image, in the order of the numbers, from the development kit."""
    from scipy.io import loadmat

    files = {Path(name).name: content for name, content in read_tar(devkit, lambda name: name.endswith((META, TRUTH)))}
    synsets = loadmat(io.BytesIO(files[META]), squeeze_me=True)["synsets"]
    names = dict(zip(map(int, synsets["ILSVRC2012_ID"]), map(str, synsets["WNID"])))
    return [names[int(line)] for line in files[TRUTH].split()]


def files_of(archive: tarfile.TarFile) -> List[Tuple[str, tarfile.TarInfo]]:
    """Return the files of an archive by the last parts of their names, sorted."""
    return sorted(((Path(member.name).name, member) for member in archive if member.isfile()), key=lambda file: file[0])


def unpack_training(archive: Path, output: Path) -> None:
    """Unpack an archive of archives, one for each class; skip complete classes."""
    with naming_damage(archive), tarfile.open(archive) as outer:
        classes = files_of(outer)
        for name, member in follow(classes, "train", "classes", len(classes)):
            folder = output / Path(name).stem
            if not folder.is_dir():
                partial = folder.with_name(f".{folder.name}")
                with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                    for image, place in files_of(inner):
                        copy_stream(inner.extractfile(place), partial / image)  # type: ignore[arg-type]
                partial.rename(folder)


def unpack_validation(archive: Path, classes: List[str], output: Path) -> None:
    """Unpack the images 1, 2, ... and put each into the folder of its class; the numbers in their names order them.

    Raises:
        DownloadError: unless the names of the images have these numbers, once each.
    """
    with naming_damage(archive), tarfile.open(archive) as container:
        images = files_of(container)
        numbers = [int(found[1]) if (found := NUMBERED.search(name)) else 0 for name, _ in images]
        if numbers != list(range(1, len(classes) + 1)):
            raise DownloadError(f"{archive}: the names of its images lack the numbers _val_00000001 to {len(classes)}")
        pairs = zip(images, classes)
        for (name, place), label in follow(pairs, "val", "images", len(images)):
            copy_stream(container.extractfile(place), output / label / name)  # type: ignore[arg-type]


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Check the archives, and unpack them."""
    inputs: Records = {}
    for name, md5 in ARCHIVES.items():
        path = args.archives / name
        print_line(f"{name}: {path.stat().st_size:,} bytes, comparing the checksum")
        inputs[name] = {"bytes": path.stat().st_size, "md5": digest_of(path, "md5")}
        if not args.smoke and inputs[name]["md5"] != md5:
            raise DownloadError(f"{path}: expected MD5 {md5}, found {inputs[name]['md5']}: get a new copy ({WHERE})")
    unpack_training(args.archives / TRAIN, work.parts / "train")
    unpack_validation(args.archives / VAL, classes_of_validation(args.archives / DEVKIT), work.output / "val")
    splits: Dict[str, Dict[str, Any]] = {}
    for split, place in (("train", work.parts), ("val", work.output)):
        images = ImageFolder(place / split)
        splits[split] = {"examples": len(images), "classes": len(images.classes)}
    (work.parts / "train").rename(work.output / "train")
    notes = ["archives with other checksums than ImageNet's may have been accepted"] if args.smoke else []
    return Report(f"archives of image-net.org in {args.archives}", splits, inputs, notes)


def remarks(folder: Path, examples: Mapping[str, Mapping[str, int]]) -> List[str]:
    """Return a warning for each split with other numbers of images or classes than the published."""
    found = {split: (sum(classes.values()), len(classes)) for split, classes in examples.items()}
    return [
        f"WARNING: {split_folder(folder, split)} has {images:,} images of {classes:,} classes, ImageNet has "
        f"{IMAGES[split]:,} of {CLASSES:,}: the result cannot be compared with others"
        for split, (images, classes) in found.items()
        if (images, classes) != (IMAGES[split], CLASSES)
    ]


DATASETS = (
    Dataset(
        "imagenet",
        DETAILS,
        (folder_option("--archives", text="folder with the three archives", required=True),),
        make,
        reads=lambda args: {"any_archives": bool(args.smoke)},
        layout=TRAIN_AND_VALID,
        fetched=False,
        remarks=remarks,
        scored=Scored(IMAGES["valid"]),
    ),
)
