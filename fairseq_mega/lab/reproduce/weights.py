"""--checkpoint: weights that were trained elsewhere, found, converted and scored in place of a training's.

The names of files in the authors' archives are not published, so that a file is identified by its contents: the kind of
model, and the options of a recipe.
"""

import hashlib
import re
import zipfile
from argparse import Namespace
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Sequence

import torch
from fairseq.data import Dictionary
from fairseq.models import (
    ARCH_CONFIG_REGISTRY,
    ARCH_MODEL_NAME_REGISTRY,
    ARCH_MODEL_REGISTRY,
    MODEL_DATACLASS_REGISTRY,
)
from fairseq.tasks import TASK_REGISTRY

from fairseq_mega.compat.files.card import card_of
from fairseq_mega.compat.files.settings import Role, options_of, seed_of
from fairseq_mega.convert import layouts
from fairseq_mega.convert.building import build_model, check_complete, table_length
from fairseq_mega.convert.options import IMAGES, flat_options, kind_of, shared_with_encoder
from fairseq_mega.data.class_folders import files_below
from fairseq_mega.lab.prepare.archives import naming_damage, obtain_recorded
from fairseq_mega.lab.prepare.checksums import sha256_of
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.stages import say
from fairseq_mega.models import cost
from fairseq_mega.models.checkpoint_files import save
from fairseq_mega.models.mega import MegaModel
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.models.mega_image import MegaImageModel
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.classification import ClassificationTask
from fairseq_mega.tasks.lra_text import CLS

from .authors_archives import FETCH_AGAIN, PUBLISHED, is_address, unpack
from .authors_data import is_named
from .choices import Choices, Weights
from .runs import Run, languages
from .scored_data import describe

HOST = "https://dl.fbaipublicfiles.com/mega"  # the READMEs of facebookresearch/mega, and XuezheMax/mega-image
KINDS = {  # of evaluations, of models
    "classifier": "classifier",
    "images": IMAGES,
    "language-model": "language model",
    "translation": "translator",
}
OF_TRAININGS = ("miniature", "figure5", "megalodon-figure1")  # reports of rates or curves, which weights lack
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
    """A checkpoint that may be the requested one, converted, its options, and those that differ from a recipe's."""

    path: Path
    checkpoint: Dict[str, Any]
    options: Dict[str, Any]
    differs: List[str]


def archive_of(recipe: Recipe) -> Optional[str]:
    """Name of the archive with the weights that the authors published for a recipe, or None."""
    return recipe.weights.get(recipe.report)


def find_weights(recipes: Sequence[Recipe], asked: str, choices: Choices) -> Dict[str, Weights]:
    """The weights of each recipe, by its name.

    Args:
        asked: a file, a folder, an address, or the word "published".

    Raises:
        RecipeError: if there are no weights, several suit a recipe, or a recipe does not score a single checkpoint.
        DownloadError: if an archive cannot be obtained or is damaged.
        ValueError: where a checkpoint cannot be converted.
    """
    places: Dict[str, Path] = {}
    found = {}
    for recipe in recipes:
        kind = recipe.evaluate["kind"]
        if kind not in KINDS:
            known = ", ".join(KINDS)
            raise RecipeError(f"--checkpoint scores recipes of {known}, and {recipe.name} is of {kind}: omit it")
        if recipe.report in OF_TRAININGS:
            raise RecipeError(
                f"--checkpoint: {recipe.name} reports on trainings, their rates or curves: omit it, or score the "
                "weights with fairseq-mega-validate"
            )
        source = address_of(recipe) if asked == PUBLISHED else asked
        if source not in places:
            places[source] = obtain(source, choices)
        place = places[source]
        chosen = choose(recipe, place)
        checkpoint, history = chosen.checkpoint, chosen.checkpoint.get("optimizer_history") or [{}]
        shown = source if is_address(source) else Path(source).name
        inside = "" if chosen.path == place else f", {chosen.path.relative_to(place)}"
        found[recipe.name] = Weights(
            path=chosen.path,
            source=shown + inside,
            authors=asked == PUBLISHED,
            sha256=digest_of(chosen.path),
            updates=history[-1].get("num_updates") or None,
            seed=seed_of(checkpoint),
            differs=tuple(chosen.differs),
        )
    return found


def address_of(recipe: Recipe) -> str:
    """Address of the weights that the authors published for a recipe; RecipeError where there are none."""
    archive = archive_of(recipe)
    if archive is None:
        raise RecipeError(f"--checkpoint: the authors published no weights for {recipe.name}: --list names those")
    return f"{HOST}/{archive}"


def obtain(source: str, choices: Choices) -> Path:
    """Return the file or folder at a path or an address, fetched, and unpacked where it is a zip file."""
    if is_address(source):
        folder = (choices.archives or choices.root / "outputs" / "archives") / "weights"
        path = obtain_recorded(source, folder, folder / RECORDS, choices.download, check_archive)
    else:
        path = Path(source).resolve()
        if not path.exists():
            raise RecipeError(f"--checkpoint {source} does not exist: give a file, a folder, an address or 'published'")
        folder = (choices.archives or choices.out) / "weights"
    if path.suffix != ".zip":
        return path
    unpacked = folder / f"{path.stem}-{sha256_of(path)[:8]}"
    if not unpacked.is_dir():
        unpack(path, unpacked)
    return unpacked


def check_archive(path: Path) -> None:
    """Raise a DownloadError for a zip file that is cut off or damaged; it is read to its end."""
    if path.suffix == ".zip":
        with naming_damage(path, FETCH_AGAIN):
            with zipfile.ZipFile(path) as container:
                broken = container.testzip()
            if broken is not None:
                raise zipfile.BadZipFile(f"{broken} is damaged")


def choose(recipe: Recipe, place: Path) -> Candidate:
    """The checkpoint for a recipe in a file or a folder: of its kind, with the fewest other options, the best one.

    Raises:
        RecipeError: naming the files that were found, if none or several suit.
    """
    found, problems = [], []
    for path in candidates(recipe, place):
        try:
            found.append(read(recipe, path))
        except (OSError, ValueError) as error:
            inside = path.name if path == place else path.relative_to(place)
            problem = str(error).splitlines()[0]
            problems.append(f"{inside}: {problem.removeprefix('--input ').removeprefix(f'{path}: ')}")
    if not found:
        seen = "; ".join(problems[:3]) or f"it holds no file that ends with {' or '.join(FILES)}"
        raise RecipeError(f"--checkpoint {place} has no weights for {recipe.name}: {seen}")
    least = min(len(one.differs) for one in found)
    nearest = [one for one in found if len(one.differs) == least]
    chosen = [one for one in nearest if "best" in one.path.name] or nearest
    if len(chosen) > 1:
        names = ", ".join(str(one.path.relative_to(place)) for one in chosen)
        raise RecipeError(f"--checkpoint {place} has several weights for {recipe.name} ({names}): give one of them")
    return chosen[0]


def candidates(recipe: Recipe, place: Path) -> Iterator[Path]:
    """Return the candidates among files: those with the name of the recipe's data, if there are some."""
    if not layouts.missing(place):
        return iter([place])
    files = [path for path in files_below(place)[0] if path.suffix in FILES]
    return iter([path for path in files if is_named(path, place, recipe)] or files)


def read(recipe: Recipe, path: Path) -> Candidate:
    """A checkpoint in this package's layout.

    Raises:
        ValueError: if it is of another model than the recipe's or of other data, or its tensors do not fit its options.
    """
    given = layouts.read(path)
    options = flat_options(given)
    arch, named, wanted_arch = options.get("arch"), options.get("task"), recipe.config["model"]["_name"]
    known, wanted = ARCH_MODEL_REGISTRY.get(str(arch)), ARCH_MODEL_REGISTRY[wanted_arch]
    if known is not None and known is not wanted:
        raise ValueError(f"this is a model of --arch {arch}, and the recipe is of --arch {wanted_arch}")
    if known is not None and known not in PUBLISHED_MODELS.values():  # whose layout is this package's own
        check_task(recipe, options, named)
        return Candidate(path, given, options, differences(recipe, options))
    ours = given if layouts.is_this_packages(given) else layouts.to_ours(given, str(path))
    kind, wanted_kind = kind_of(ours["model"]), KINDS[recipe.evaluate["kind"]]
    if kind != wanted_kind:
        raise ValueError(f"this is a {kind or 'model of another package'}, and the recipe is of a {wanted_kind}")
    options = flat_options(ours)
    if ARCH_MODEL_REGISTRY.get(str(options.get("arch")), PUBLISHED_MODELS[kind]) is not wanted:
        raise ValueError(f"these are published weights of another model, and the recipe is of --arch {wanted_arch}")
    check_task(recipe, options, named)
    check_complete(Namespace(**options), ours["model"], str(path))
    return Candidate(path, ours, options, differences(recipe, options))


def check_task(recipe: Recipe, options: Dict[str, Any], named: Optional[str]) -> None:
    """Raise a ValueError for a model of other languages than a recipe's, another form of input, or another task.

    Args:
        options: of the checkpoint, converted.
        named: the task in the checkpoint, if it names one.
    """
    wanted = recipe.config["task"]
    task, given = (TASK_REGISTRY.get(str(name)) for name in (wanted["_name"], options.get("task")))
    pairs = {name: (options.get(name), wanted.get(name)) for name in OF_DATA}
    if task is not None and issubclass(task, ClassificationTask):
        pairs["input_type"] = (options.get("input_type") or getattr(given, "input_type", None), task.input_type)
        if given is not None and named is not None and issubclass(given, ClassificationTask):
            pairs["task"] = (named, wanted["_name"])
    for name, values in pairs.items():
        if None not in values and len(set(map(as_words, values))) > 1:
            option, (found, value) = f"--{name.replace('_', '-')}", map(as_words, values)
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
    wanted = {name: value for name, value in {**defaults, **vars(given)}.items() if name not in unread}
    found = {name: options.get(name) if options.get(name) is not None else defaults.get(name) for name in wanted}
    wanted, found = in_effect(wanted), in_effect(found)
    return [
        f"--{name.replace('_', '-')} {found[name]}, in the recipe {value}"
        for name, value in wanted.items()
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


def convert(run: Run, weights: Weights, choices: Choices) -> None:
    """Copy the weights to the place of a training's best checkpoint, and print what may differ from the recipe.

    Raises:
        ValueError: if they have another number of symbols or labels than the data.
    """
    found = read(run.recipe, weights.path)
    say(f"weights: {weights.source}, SHA-256 {weights.sha256}")
    check_classes(run, found.options, found.path)
    lines = list(weights.differs) or ["options of the model: those of the recipe"]
    counts = symbols_told(run, found.checkpoint["model"], found.path)
    if counts and not card_of(found.checkpoint, found.path):
        counts[-1] += (
            "; a published checkpoint does not keep their order, which --processed published takes from the authors' "
            "data"
        )
    lines += counts
    lines += describe(run, choices)
    lines += [f"recipe: {run.recipe.notes}"] if run.recipe.notes else []
    for line in lines:
        say(f"  {line}")
    options = found.checkpoint.get("args")
    if options is not None and getattr(options, "criterion", None) is None:
        options.criterion = run.recipe.config["criterion"]["_name"]  # required by fairseq-validate
    save(found.checkpoint, run.folder / "checkpoints" / "checkpoint_best.pt")


def check_classes(run: Run, options: Dict[str, Any], path: Path) -> None:
    """Raise a ValueError if a classifier has another number of classes than the data."""
    for name in ("sentence_class_num", "image_class_num"):
        there, found = run.config["model"].get(name), options.get(name)
        if there is not None and found is not None and int(found) != int(there):
            raise ValueError(
                f"{path} has --{name.replace('_', '-')} {found}, and {run.data} {there} classes: it was trained on "
                "other data; give weights of this task"
            )


def symbols_told(run: Run, model: Dict[str, Any], path: Path) -> List[str]:
    """Return a line about each dictionary of the model.

    Raises:
        ValueError: if one is not as long as the data's.
    """
    return [
        line
        for side, file in dictionaries(run, kind_of(model)).items()
        for line in table_told(run, model, path, side, file)
    ]


def dictionaries(run: Run, kind: str) -> Dict[str, str]:
    """Return the files of the dictionaries of a kind of model by its sides."""
    if kind == "language model":
        return {"decoder": "dict.txt"}
    if kind == "translator":
        source, target = languages(run)
        return {"encoder": f"dict.{source}.txt", "decoder": f"dict.{target}.txt"}
    return {"encoder": "src-bin/dict.txt"}


def table_told(run: Run, model: Dict[str, Any], path: Path, side: str, file: str) -> List[str]:
    """Return a line about the dictionary of a side, if it has one; raises ValueError as :func:`symbols_told`."""
    dictionary = run.data / file
    if not dictionary.is_file() or not any(name.startswith(f"{side}.embedding.tokens.") for name in model):
        return []  # the tables of other models are compared where they are loaded
    symbols = Dictionary.load(str(dictionary))
    if kind_of(model) == "classifier":
        symbols.add_symbol(CLS)  # as the task does
    needed, there = table_length(model, side), len(symbols)
    if needed != there:
        raise ValueError(
            f"{path} has {needed} symbols, and {dictionary} {there}: it was trained on other data; give --processed "
            f"published, or --data with those"
        )
    return [f"dictionary: {there} symbols, as many as in {dictionary}"]


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
