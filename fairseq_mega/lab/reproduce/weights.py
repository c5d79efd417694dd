"""--checkpoint: weights that were trained elsewhere, converted and scored in place of a training's."""

import shutil
import zipfile
from argparse import Namespace
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, List, Sequence

from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)

from fairseq_mega.compat.files.settings import Role, options_of, seed_of, setting_of
from fairseq_mega.convert import layouts
from fairseq_mega.convert.options import IMAGES, flat_options, kind_of
from fairseq_mega.data.class_folders import files_below
from fairseq_mega.lab.prepare.archives import FETCH_AGAIN, naming_damage
from fairseq_mega.lab.prepare.download import fetch_missing, sha256_of
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.stages import print_line
from fairseq_mega.models.checkpoint_files import save

from .data import origin_of
from .jobs import Job
from .settings import Choices, Weights

PUBLISHED = "published"  # in place of a file
HOST = "https://dl.fbaipublicfiles.com/mega"  # the READMEs of facebookresearch/mega, and XuezheMax/mega-image
OF_TRAININGS = ("miniature", "text-budget", "figure5", "megalodon-figure1")  # reports of learning rates or curves
# Kinds of published checkpoints to this package's model, as theirs may have another name.
CONVERTED = {"classifier": "mega_lra", IMAGES: "mega_image", "language model": "mega_lm", "translator": "mega"}
FILES = (".pt", ".pth")
NAMES = {  # data sets of mega.lra.zip to parts of the paths of their checkpoints, which nobody has published
    "listops": ("listop",),
    "imdb": ("imdb", "text"),
    "aan": ("aan", "retrieval"),
    "cifar10": ("cifar", "image"),
    "pathfinder32": ("pathfinder32", "pathfinder", "path32", "pf32"),
    "pathx": ("path-x", "pathx", "path_x", "pathfinder128", "path128", "pf128"),
}


def find_weights(recipes: Sequence[Recipe], requested: str, choices: Choices) -> Dict[str, Weights]:
    """Return the weights of each recipe, by its name.

    Args:
        requested: a file, a folder, or the word "published".

    Raises:
        RecipeError: if there are no weights, several suit a recipe, or a recipe does not score a single checkpoint.
        DownloadError: if an archive cannot be obtained or is damaged.
        ValueError: where a checkpoint is not the recipe's, or cannot be converted.
    """
    found, published = {}, requested == PUBLISHED
    for recipe in recipes:
        archive = recipe.weights.get(recipe.report)
        if recipe.measured or recipe.report in OF_TRAININGS or (published and archive is None):
            raise RecipeError(f"--checkpoint: there is no published or single checkpoint to score for {recipe.name}")
        place = obtain(archive, choices) if published and archive else Path(requested).resolve()
        path = file_for(recipe, place)
        checkpoint = read(recipe, path)
        history = checkpoint.get("optimizer_history") or [{}]
        inside = "" if path == place else f", {path.relative_to(place)}"
        found[recipe.name] = Weights(
            path=path,
            source=(f"{HOST}/{archive}" if published else place.name) + inside,
            authors=published,
            sha256=sha256_of(path),
            updates=history[-1].get("num_updates") or None,
            seed=seed_of(checkpoint),
            differs=tuple(differences(recipe, checkpoint)),
        )
    return found


def obtain(archive: str, choices: Choices) -> Path:
    """Return the folder of an archive of the authors, fetched and unpacked.

    Raises:
        DownloadError: if it cannot be obtained or is damaged.
    """
    path = choices.root / "outputs" / "archives" / archive
    folder, partial = path.with_suffix(""), path.with_suffix(".partial")  # there whole or not at all
    if not folder.is_dir():
        fetch_missing(f"{HOST}/{archive}", path)
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir()
        print_line(f"unpacking {path} to {folder}")
        with naming_damage(path, FETCH_AGAIN), zipfile.ZipFile(path) as container:
            container.extractall(partial)  # this skips members outside the folder
        partial.rename(folder)
    return folder


def file_for(recipe: Recipe, place: Path) -> Path:
    """Return the one checkpoint for a recipe in a file or a folder: with its data set in the path, and the best one.

    Raises:
        RecipeError: naming the files that were found, if none or several suit.
    """
    if place.is_file():
        return place
    files = [path for path in files_below(place)[0] if path.suffix in FILES] if place.is_dir() else []
    names = NAMES.get(recipe.dataset, ())
    named = [path for path in files if any(name in str(path.relative_to(place)).lower() for name in names)] or files
    chosen = [path for path in named if "best" in path.name] or named
    if len(chosen) != 1:
        there = ", ".join(str(path.relative_to(place)) for path in chosen) or "none"
        raise RecipeError(f"--checkpoint {place}: give one checkpoint for {recipe.name}, of those there: {there}")
    return chosen[0]


def read(recipe: Recipe, path: Path) -> Dict[str, Any]:
    """Read a checkpoint, converted to this package's layout.

    Raises:
        ValueError: if it is of another model than the recipe's.
    """
    given, arch = layouts.read(path), recipe.config["model"]["_name"]
    published = {"consolidation", "transformers"} & given.keys() or layouts.is_published_file(given)
    ours = layouts.to_ours(given, str(path)) if published else given
    named, kind = flat_options(ours).get("arch"), kind_of(ours["model"])
    model = ARCH_MODEL_REGISTRY.get(str(named)) or ARCH_MODEL_REGISTRY.get(CONVERTED.get(kind))
    if model is not ARCH_MODEL_REGISTRY[arch]:
        raise ValueError(f"--checkpoint {path} is of {named or kind}, and {recipe.name} of --arch {arch}")
    return ours


def differences(recipe: Recipe, checkpoint: Dict[str, Any]) -> List[str]:
    """List the options of a checkpoint's model that scores depend on and that are not a recipe's, or their defaults."""
    given = Namespace(**recipe.config["model"])
    ARCH_CONFIG_REGISTRY[given._name](given)
    kind = MODEL_DATACLASS_REGISTRY.get(given._name) or MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[given._name]]
    defaults = {field.name: field.default for field in fields(kind)}
    both = [{**defaults, **values} for values in (flat_options(checkpoint), vars(given))]
    names = [name for role in (Role.OUTPUTS, Role.TENSORS, Role.RUN) for name in options_of(role) if name in both[1]]
    pairs = {name: [setting_of(values, name) for values in both] for name in names}
    return [
        f"{flag_of(name)} {found}, in the recipe {expected}"
        for name, (found, expected) in pairs.items()
        if found is not None and "${" not in f"{found}{expected}" and not is_same(found, expected)
    ]


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values of an option are equal: numbers by value, and all false and empty values."""
    if not one and not other:
        return True
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return str(one) == str(other)


def convert(job: Job) -> None:
    """Copy the weights to the place of a training's best checkpoint, and print what may differ from the recipe.

    The evaluation refuses tables of another length than the data's dictionary.

    Raises:
        ValueError: if a classifier has another number of classes than the data.
    """
    weights = job.weights
    assert weights is not None
    checkpoint = read(job.recipe, weights.path)
    for name in ("sentence_class_num", "image_class_num"):
        classes, expected = flat_options(checkpoint).get(name), job.config["model"].get(name)
        if classes is not None and expected is not None and int(classes) != int(expected):
            raise ValueError(f"--checkpoint {weights.path} has {classes} classes, and {job.data} {expected}")
    print_line(f"weights: {weights.source}, SHA-256 {weights.sha256}; data: {origin_of(job)}")
    for line in weights.differs:
        print_line(f"  {line}")
    options = checkpoint.get("args")
    if options is not None and getattr(options, "criterion", None) is None:
        options.criterion = job.recipe.config["criterion"]["_name"]  # required by fairseq-validate
    save(checkpoint, job.folder / "checkpoints" / "checkpoint_best.pt")
