"""ImageNet (ILSVRC-2012): its archives unpacked to a folder per class (Russakovsky et al., 2015)."""

import argparse
import importlib.util
import io
import re
import tarfile
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.lab.prepare.archives import naming_damage, read_tar
from fairseq_mega.lab.prepare.checksums import Records, digest_of
from fairseq_mega.lab.prepare.classification import toy_data
from fairseq_mega.lab.prepare.dataset import PICTURES, Dataset, Report, Scored, Sources
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.layouts import TRAIN_AND_VALID
from fairseq_mega.lab.prepare.progress import Progress, print_line
from fairseq_mega.lab.prepare.shared_options import add_path
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream

CLASSES = 1000
IMAGES = {"train": 1_281_167, "valid": 50_000}
NUMBERED = re.compile(r"_val_(\d+)")  # number in the name of a validation image


class Published(NamedTuple):
    """An archive of image-net.org: its name, and its MD5 from torchvision."""

    name: str
    md5: str


ARCHIVES = {
    "train": Published("ILSVRC2012_img_train.tar", "1d675b47d978889d74fa0da5fadfb00e"),
    "val": Published("ILSVRC2012_img_val.tar", "29b22e2961454d5413ddabcf34fc5622"),
    "devkit": Published("ILSVRC2012_devkit_t12.tar.gz", "fa75699e90414af021442c21a62c3abf"),
}
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"  # in the development kit
WHERE = "https://image-net.org/download provides them to registered researchers"

DETAILS = f"""\
{IMAGES["train"]:,} images to train on and {IMAGES["valid"]:,} to validate with, of {CLASSES:,} classes:
train/CLASS/FILE and val/CLASS/FILE for --task image-classification. The archives are not downloaded:
{WHERE}.
{", ".join(archive.name for archive in ARCHIVES.values())} are read where they are,
the result has 155 GB. An interrupted run continues with the missing classes. A folder that is already unpacked needs
no preparation."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ImageNet."""
    add_path(parser, "--archives", "folder with the three archives", required=True, metavar="DIR")
    parser.add_argument(
        "--any-archives", action="store_true", help="accept archives with other checksums than the published"
    )


def classes_of_validation(devkit: Path) -> List[str]:
    """Return the WordNet ID of each validation image, in the order of the numbers, from the development kit.

    Raises:
        DownloadError: if the kit is damaged.
    """
    from scipy.io import loadmat

    files = {Path(name).name: content for name, content in read_tar(devkit, lambda name: name.endswith((META, TRUTH)))}
    synsets = loadmat(io.BytesIO(files[META]), squeeze_me=True)["synsets"]
    numbers = [int(line) for line in files[TRUTH].split()]
    names = dict(zip(map(int, synsets["ILSVRC2012_ID"]), map(str, synsets["WNID"])))
    return [names[number] for number in numbers]


def extract_file(archive: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """Write a file of an archive to a folder, named by the last part of its name; skip other members."""
    stream = archive.extractfile(member) if member.isfile() else None
    if stream is not None:
        folder.mkdir(parents=True, exist_ok=True)
        copy_stream(stream, folder / Path(member.name).name)


def unpack_training(archive: Path, output: Path) -> None:
    """Unpack an archive of archives, one for each class; skip complete classes."""
    with tarfile.open(archive) as outer:
        members = [member for member in outer if member.isfile()]
        for member in Progress("train", "classes", len(members)).follow(members):
            folder = output / Path(member.name).stem
            if folder.is_dir():
                continue
            partial = folder.with_name(f".{folder.name}")
            with tarfile.open(fileobj=outer.extractfile(member)) as inner:
                for image in inner:
                    extract_file(inner, image, partial)
            partial.rename(folder)


def unpack_validation(archive: Path, classes: List[str], output: Path) -> None:
    """Unpack images and put each into the folder of its class, which the number in its name chooses.

    Args:
        archive: of the images.
        classes: of images 1, 2, ...

    Raises:
        DownloadError: unless the names of the images have these numbers, once each.
    """
    with tarfile.open(archive) as container:
        members = [member for member in container if member.isfile()]
        found = [NUMBERED.search(Path(member.name).name) for member in members]
        numbers = [int(match[1]) if match else 0 for match in found]
        if sorted(numbers) != list(range(1, len(classes) + 1)):
            raise DownloadError(
                f"{archive}: the names of its {len(members):,} images do not have the numbers 1 to {len(classes):,} of "
                "the development kit, as in ILSVRC2012_val_00000001.JPEG: get the archive of image-net.org"
            )
        for member, number in Progress("val", "images", len(members)).follow(zip(members, numbers)):
            extract_file(container, member, output / classes[number - 1])


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Check the archives, and unpack them."""
    paths = {name: args.archives / archive.name for name, archive in ARCHIVES.items()}
    inputs: Records = {}
    for name, path in paths.items():
        print_line(f"{path.name}: {path.stat().st_size:,} bytes, comparing the checksum")
        inputs[path.name] = {"bytes": path.stat().st_size, "md5": digest_of(path, "md5")}
        if not args.any_archives and inputs[path.name]["md5"] != ARCHIVES[name].md5:
            raise DownloadError(
                f"{path}: expected MD5 {ARCHIVES[name].md5}, found {inputs[path.name]['md5']}: get a new copy ({WHERE})"
            )
    classes = classes_of_validation(paths["devkit"])
    with naming_damage(paths["train"]):
        unpack_training(paths["train"], work.parts / "train")
    with naming_damage(paths["val"]):
        unpack_validation(paths["val"], classes, work.output / "val")
    splits: Dict[str, Dict[str, Any]] = {}
    for split, place in (("train", work.parts), ("val", work.output)):
        images = ImageFolder(place / split)
        splits[split] = {"examples": len(images), "classes": len(images.classes)}
    (work.parts / "train").rename(work.output / "train")
    notes = ["archives with other checksums than ImageNet's may have been accepted"] if args.any_archives else []
    return Report(f"archives of image-net.org in {args.archives}", splits, inputs, notes)


def check_sources(folder: Path, sources: Sources) -> None:
    """Refuse absent archives, which cannot be fetched."""
    archives = sources.archives or folder
    missing = [archive.name for archive in ARCHIVES.values() if not (archives / archive.name).exists()]
    if missing:
        raise ValueError(
            f"{folder} holds no ImageNet, and {archives} lacks {', '.join(missing)}: name the folder above train and "
            f"val, each with a folder per class, with --data, or that of the archives with --archives ({WHERE})"
        )


def check_readers() -> None:
    """Refuse to train without timm."""
    if importlib.util.find_spec("timm") is None:
        raise ValueError("the images of ImageNet need timm: run 'bash scripts/setup.sh --extras images'")


def remarks(folder: Path, examples: Mapping[str, Mapping[str, int]]) -> List[str]:
    """Return a warning for each split with other numbers of images or classes than the published."""
    found = {split: (sum(classes.values()), len(classes)) for split, classes in examples.items()}
    return [
        f"WARNING: {split_folder(folder, split)} has {images:,} images of {classes:,} classes, ImageNet has "
        f"{IMAGES[split]:,} of {CLASSES:,}: the result cannot be compared with others"
        for split, (images, classes) in found.items()
        if (images, classes) != (IMAGES[split], CLASSES)
    ]


DATASET = Dataset(
    "imagenet",
    PICTURES,
    "ImageNet, colour images of 1,000 classes",
    DETAILS,
    add_options,
    lambda args: None,
    make,
    toy_data.imagenet,
    layout=TRAIN_AND_VALID,
    check_sources=check_sources,
    check_readers=check_readers,
    remarks=remarks,
    scored=Scored(IMAGES["valid"]),
)
