"""Images in a folder per class as data of recipes: ImageNet."""

import importlib.util
from pathlib import Path
from typing import List

import numpy as np

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.lab.prepare.classification import imagenet
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.runs.commands import PYTHON
from fairseq_mega.lab.runs.fingerprints import digest

from .choices import Choices
from .data import Data, Examined


class ImageFolders(Data):
    """Images ``{split}/CLASS/FILE``."""

    def is_there(self, folder: Path) -> bool:
        """Return whether both splits have folders; a work folder of fairseq-mega-prepare must be finished."""
        found = all(split_folder(folder, split).is_dir() for split in imagenet.IMAGES)
        return found and not (folder / "unfinished").exists()

    def check_readers(self) -> None:
        if importlib.util.find_spec("timm") is None:
            raise RecipeError("the images of ImageNet need timm: run 'bash scripts/setup.sh --extras images'")

    def examine(self, folder: Path) -> Examined:
        """Compute the digest of the numbers of images of each class; reading all images would take hours."""
        splits = {split: ImageFolder(split_folder(folder, split)) for split in imagenet.IMAGES}
        counts = {split: dict(zip(f.classes, np.bincount(f.labels).tolist())) for split, f in splits.items()}
        remarks = [
            f"WARNING: {images.folder} has {len(images):,} images of {len(images.classes):,} classes, ImageNet has "
            f"{imagenet.IMAGES[split]:,} of {imagenet.CLASSES:,}: the result cannot be compared with others"
            for split, images in splits.items()
            if (len(images), len(images.classes)) != (imagenet.IMAGES[split], imagenet.CLASSES)
        ]
        return Examined(digest(counts), remarks)


def command(folder: Path, choices: Choices) -> List[str]:
    """Return the command that unpacks the archives."""
    words = [*PYTHON, "fairseq_mega.lab.prepare", "imagenet", "--out", str(folder)]
    if choices.smoke:
        return [*words, "--smoke"]
    return [*words, "--archives", str(archives_of(folder, choices))]


def check(folder: Path, choices: Choices) -> None:
    """Raise a RecipeError where neither the images nor their archives are there, or cannot be read."""
    archives = archives_of(folder, choices)
    missing = [archive.name for archive in imagenet.ARCHIVES.values() if not (archives / archive.name).exists()]
    if missing and not choices.smoke:
        raise RecipeError(
            f"{folder} holds no ImageNet, and {archives} lacks {', '.join(missing)}: name the folder above train and "
            f"val, each with a folder per class, with --data, or that of the archives with --archives "
            f"({imagenet.WHERE})"
        )


def archives_of(folder: Path, choices: Choices) -> Path:
    """The folder of the archives, by default beside the images."""
    return choices.archives or folder.parent / "archives"


IMAGENET = ImageFolders("imagenet", command, check, [], imagenet.DATASET.scored)
