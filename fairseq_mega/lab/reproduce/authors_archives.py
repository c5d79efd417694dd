"""The authors' processed archives: where they are published, fetched and unpacked for --processed."""

import shutil
import zipfile
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, naming_damage
from fairseq_mega.lab.prepare.dataset import Processed
from fairseq_mega.lab.prepare.download import fetch_missing
from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError

from .choices import Choices

PUBLISHED = "published"  # in place of an address
HOST = "https://dl.fbaipublicfiles.com/mega/data"  # the READMEs of facebookresearch/mega, examples/mega


def is_address(given: str) -> bool:
    """Return whether --processed or --checkpoint names archives, and nothing on this disk."""
    return given == PUBLISHED or "://" in given


def processed_of(recipe: Recipe) -> Processed:
    """Return the published form of the data of a recipe; RecipeError where there is none."""
    processed = dataset_of(recipe).processed
    if processed is None or not is_published(recipe):
        raise RecipeError(f"--processed: the authors published no processed data for {recipe.name}: omit it")
    return processed


def addresses(recipes: Sequence[Recipe], given: str) -> List[str]:
    """The address that was given, or those of the published archives that the recipes need.

    Raises:
        RecipeError: where the data of a recipe were not published.
    """
    if given != PUBLISHED:
        return [given]
    return [f"{HOST}/{name}" for name in dict.fromkeys(processed_of(recipe).archive for recipe in recipes)]


def fetch_processed(recipes: Sequence[Recipe], choices: Choices) -> None:
    """Fetch the archives that --processed names and unpack them below its folder, as far as that has not been done.

    Raises:
        RecipeError, DownloadError: if one cannot be obtained, is damaged, or does not fit on the disk.
    """
    if choices.processed is None or choices.processed_from is None:
        return
    for url in addresses(recipes, choices.processed_from):
        archive = choices.processed.parent / url.rpartition("/")[2]
        folder = choices.processed / archive.stem
        if not folder.is_dir():
            fetch_missing(url, archive, attempts=8, allowed=choices.download)
            unpack(archive, folder)


def unpack(archive: Path, folder: Path) -> None:
    """Unpack a zip file to a folder, which is there whole or not at all."""
    partial = folder.with_name(folder.name + ".partial")
    shutil.rmtree(partial, ignore_errors=True)
    with naming_damage(archive, FETCH_AGAIN), zipfile.ZipFile(archive) as container:
        needed = sum(member.file_size for member in container.infolist())
        partial.mkdir(parents=True)
        free = shutil.disk_usage(partial).free
        if needed > free:
            raise RecipeError(
                f"{archive} unpacks to {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free in {folder.parent}: "
                "free some, or name a folder on a larger disk with --archives"
            )
        say(f"{archive.name}: unpacking {needed / 1e6:.0f} MB to {folder}")
        container.extractall(partial)  # this leaves out members outside the folder
    partial.rename(folder)
