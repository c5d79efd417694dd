"""--checkpoint: weights that were trained elsewhere, converted and scored in place of a training's."""

import hashlib
import re
from argparse import Namespace
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from fairseq.tasks import TASK_REGISTRY

from fairseq_mega.compat.files.settings import Role, options_of, seed_of
from fairseq_mega.convert import layouts
from fairseq_mega.convert.building import build_model, check_complete
from fairseq_mega.convert.options import IMAGES, flat_options, kind_of, shared_with_encoder
from fairseq_mega.data.class_folders import files_below
from fairseq_mega.lab.prepare.archives import obtain_recorded
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.recipes.command_line import flag_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.stages import print_line
from fairseq_mega.models import cost
from fairseq_mega.models.checkpoint_files import save
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_image import MegaImageModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.classification import ClassificationTask

from .authors_data import check_archive, is_named, unpack
from .data import origin_of
from .jobs import Job
from .settings import PUBLISHED, Choices, Weights, is_address

HOST = "https://dl.fbaipublicfiles.com/mega"  # the READMEs of facebookresearch/mega, and XuezheMax/mega-image
OF_TRAININGS = ("miniature", "figure5", "megalodon-figure1")  # reports of learning rates or curves, which weights lack
PUBLISHED_MODELS = {  # models with another published layout than this package's
    "classifier": MegaClassifier,
    IMAGES: MegaImageModel,
    "language model": MegaLanguageModel,
    "translator": MegaModel,
}
BUFFERS = re.compile(  # names of tensors that are not learned
    r"(^|\.)(dictionary_fingerprints?|sample_scale|version|_float_tensor|running_\w+|num_batches_tracked|start)$"
)
OF_DATA = (  # options of tasks that decide the numbers in the data
    "pixel_normalization",
    "sc_scaling",
    "source_lang",
    "target_lang",
)
FILES = (".pt", ".pth")
RECORDS = "weights.json"  # checksums of the archives that were fetched


class Candidate(NamedTuple):
    """A checkpoint of this package's layout, and its options that differ from a recipe's."""

    checkpoint: Dict[str, Any]
    differs: List[str]


def find_weights(recipes: Sequence[Recipe], requested: str, choices: Choices) -> Dict[str, Weights]:
    """The weights of each recipe, by its name.

    Args:
        requested: a file, a folder, an address, or the word "published".

    Raises:
        RecipeError: if there are no weights, several suit a recipe, or a recipe does not score a single checkpoint.
        DownloadError: if an archive cannot be obtained or is damaged.
        ValueError: where a checkpoint is not the recipe's, or cannot be converted.
    """
    found = {}
    places: Dict[str, Path] = {}  # by the sources, which several recipes may share
    for recipe in recipes:
        if recipe.measured or recipe.report in OF_TRAININGS:
            raise RecipeError(
                f"--checkpoint: {recipe.name} does not score one checkpoint: omit it, or score the weights with "
                "fairseq-mega-validate"
            )
        archive = recipe.weights.get(recipe.report)
        if requested == PUBLISHED and archive is None:
            raise RecipeError(f"--checkpoint: the authors published no weights for {recipe.name}: --list names those")
        source = f"{HOST}/{archive}" if requested == PUBLISHED else requested
        if source not in places:
            places[source] = obtain(source, choices)
        place = places[source]
        path = file_for(recipe, place)
        read_one = read(recipe, path)
        history = read_one.checkpoint.get("optimizer_history") or [{}]
        inside = "" if path == place else f", {path.relative_to(place)}"
        found[recipe.name] = Weights(
            path=path,
            source=(source if is_address(source) else Path(source).name) + inside,
            authors=requested == PUBLISHED,
            sha256=digest_of(path),
            updates=history[-1].get("num_updates") or None,
            seed=seed_of(read_one.checkpoint),
            differs=tuple(read_one.differs),
        )
    return found


def obtain(source: str, choices: Choices) -> Path:
    """Return the file or folder at a path or an address, fetched, and unpacked where it is a zip file."""
    folder, path = (choices.archives or choices.out) / "weights", Path(source).resolve()
    if is_address(source):
        folder = (choices.archives or choices.root / "outputs" / "archives") / "weights"
        path = obtain_recorded(source, folder, folder / RECORDS, choices.download, check_archive)
    if path.suffix != ".zip":
        return path
    unpacked = folder / f"{path.stem}-{sha256_of(path)[:8]}"
    if not unpacked.is_dir():
        unpack(path, unpacked)
    return unpacked


def file_for(recipe: Recipe, place: Path) -> Path:
    """Return the one checkpoint for a recipe in a file or a folder: with its data set in the path, and the best one.

    Raises:
        RecipeError: naming the files that were found, if none or several suit.
    """
    if not layouts.missing(place):
        return place
    files = [path for path in files_below(place)[0] if path.suffix in FILES] if place.is_dir() else []
    named = [path for path in files if is_named(path, place, recipe)] or files
    chosen = [path for path in named if "best" in path.name] or named
    if len(chosen) != 1:
        names = ", ".join(str(path.relative_to(place)) for path in chosen) or "none"
        raise RecipeError(f"--checkpoint {place}: give one checkpoint for {recipe.name}, of those there: {names}")
    return chosen[0]


def read(recipe: Recipe, path: Path) -> Candidate:
    """A checkpoint in this package's layout.

    Raises:
        ValueError: if it is of another model than the recipe's or of other data, or its tensors do not fit its options.
    """
    given, arch = layouts.read(path), recipe.config["model"]["_name"]
    named, model = (flat_options(given).get(name) for name in ("task", "arch"))
    own = ARCH_MODEL_REGISTRY.get(str(model)) not in (None, *PUBLISHED_MODELS.values())
    ours = given if own or layouts.is_this_packages(given) else layouts.to_ours(given, str(path))
    options, kind = flat_options(ours), kind_of(ours["model"])
    if ARCH_MODEL_REGISTRY.get(str(options.get("arch")), PUBLISHED_MODELS.get(kind)) is not ARCH_MODEL_REGISTRY[arch]:
        raise ValueError(f"--checkpoint {path} is of {model or kind}, and {recipe.name} of --arch {arch}")
    check_task(recipe, options, named)
    if not own:
        check_complete(Namespace(**options), ours["model"], str(path))
    return Candidate(ours, differences(recipe, options))


def check_task(recipe: Recipe, options: Dict[str, Any], named: Optional[str]) -> None:
    """Raise a ValueError for a model of other languages than a recipe's, another form of input, or another task.

    Args:
        options: of the checkpoint, converted.
        named: the task in the checkpoint, if it names one.
    """
    expected = recipe.config["task"]
    task, given = (TASK_REGISTRY.get(str(name)) for name in (expected["_name"], options.get("task")))
    pairs = {name: (options.get(name), expected.get(name)) for name in OF_DATA}
    if task is not None and issubclass(task, ClassificationTask):
        pairs["input_type"] = (options.get("input_type") or getattr(given, "input_type", None), task.input_type)
        if given is not None and named is not None and issubclass(given, ClassificationTask):
            pairs["task"] = (named, expected["_name"])
    for name, values in pairs.items():
        if None not in values and len(set(map(as_words, values))) > 1:
            option, (found, value) = flag_of(name), map(as_words, values)
            raise ValueError(
                f"this model was trained with {option} {found}, and the recipe has {option} {value}: give weights of "
                f"the recipe's task"
            )


def as_words(value: Any) -> str:
    """Return a value of an option as it stands on a command line."""
    return str(value) if isinstance(value, (str, Enum)) else " ".join(f"{float(number):g}" for number in value)


def differences(recipe: Recipe, options: Dict[str, Any]) -> List[str]:
    """List the options of a model that decide its outputs and are not those of a recipe, or not their defaults."""
    given = Namespace(**recipe.config["model"])
    ARCH_CONFIG_REGISTRY[given._name](given)
    kind = MODEL_DATACLASS_REGISTRY.get(given._name) or MODEL_DATACLASS_REGISTRY[ARCH_MODEL_NAME_REGISTRY[given._name]]
    defaults = {field.name: field.default for field in fields(kind)}
    if kind.__module__.split(".")[0] != __name__.split(".")[0]:  # fairseq's have many options that change nothing
        decisive = options_of(Role.OUTPUTS)
        defaults = {name: value for name, value in defaults.items() if name in decisive}
    unread = {"_name", *options_of(Role.TRAINING)}
    expected = {name: value for name, value in {**defaults, **vars(given)}.items() if name not in unread}
    found = {name: options.get(name) if options.get(name) is not None else defaults.get(name) for name in expected}
    expected, found = in_effect(expected), in_effect(found)
    return [
        f"{flag_of(name)} {found[name]}, in the recipe {value}"
        for name, value in expected.items()
        if found[name] is not None and not (is_of_task(value) or is_of_task(found[name]))
        if not is_same(found[name], value)
    ]


def in_effect(options: Dict[str, Any]) -> Dict[str, Any]:
    """Return a model's options with the values that other options decide."""
    filled = shared_with_encoder(options)
    if options.get("share_all_embeddings") and "share_decoder_input_output_embed" in options:
        filled["share_decoder_input_output_embed"] = True
    return filled


def is_of_task(value: Any) -> bool:
    """Return whether a value of a model's option refers to the task's option."""
    return isinstance(value, str) and value.startswith("${")


def is_same(one: Any, other: Any) -> bool:
    """Return whether two values of an option are equal: numbers by value, and all false and empty values."""
    if not one and not other:
        return True
    try:
        return float(one) == float(other)
    except (TypeError, ValueError):
        return str(one) == str(other)


def digest_of(path: Path) -> str:
    """Return the SHA-256 of a file; for a folder that of the output of sha256sum for its files."""
    if path.is_file():
        return sha256_of(path)
    files = sorted(file for file in path.rglob("*") if file.is_file())
    listed = "".join(f"{sha256_of(file)}  {file.relative_to(path).as_posix()}\n" for file in files)
    return hashlib.sha256(listed.encode()).hexdigest()


def convert(job: Job, weights: Weights) -> None:
    """Copy the weights to the place of a training's best checkpoint, and print what may differ from the recipe.

    The evaluation refuses tables of another length than the data's dictionary.

    Raises:
        ValueError: if a classifier has another number of classes than the data.
    """
    found = read(job.recipe, weights.path)
    for name in ("sentence_class_num", "image_class_num"):
        classes, expected = flat_options(found.checkpoint).get(name), job.config["model"].get(name)
        if classes is not None and expected is not None and int(classes) != int(expected):
            raise ValueError(f"--checkpoint {weights.path} has {classes} classes, and {job.data} {expected}")
    print_line(f"weights: {weights.source}, SHA-256 {weights.sha256}; data: {origin_of(job)}")
    for line in weights.differs or ["options of the model: those of the recipe"]:
        print_line(f"  {line}")
    if job.recipe.notes:
        print_line(f"  recipe: {job.recipe.notes}")
    options = found.checkpoint.get("args")
    if options is not None and getattr(options, "criterion", None) is None:
        options.criterion = job.recipe.config["criterion"]["_name"]  # required by fairseq-validate
    save(found.checkpoint, job.folder / "checkpoints" / "checkpoint_best.pt")


def parameters_of(path: Path) -> int:
    """Number of parameters of a checkpoint of this package."""
    checkpoint = layouts.read(path)
    options, model = flat_options(checkpoint), checkpoint["model"]
    kind = ARCH_MODEL_REGISTRY.get(str(options.get("arch")))
    if kind is not None and kind not in PUBLISHED_MODELS.values():
        learned = (tensor for name, tensor in model.items() if not BUFFERS.search(name))
        return sum({tensor.data_ptr(): tensor.numel() for tensor in learned}.values())  # what is shared once
    with torch.device("meta"):
        return cost.parameters(build_model(Namespace(**options), model))
