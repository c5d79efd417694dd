"""The runner: all checks first, then the data, then every run on its GPUs, then the tables."""

import importlib.util
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import ContextManager, Dict, List, NamedTuple, Optional, Sequence, Tuple

from fairseq.data import Dictionary

from fairseq_mega.compat.files import locks
from fairseq_mega.data.class_folders import files_below
from fairseq_mega.lab.prepare.of_recipes import dataset_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.report.recipe_states import FAILED
from fairseq_mega.lab.runs.commands import Execute, StageError, execute
from fairseq_mega.lab.runs.files import in_the_way_of, write_json
from fairseq_mega.lab.runs.fingerprints import digest_of_data
from fairseq_mega.lab.runs.plotting import load_pyplot
from fairseq_mega.lab.runs.results import read_result
from fairseq_mega.lab.runs.stages import say, stage
from fairseq_mega.models.tables import band_ends

from . import datasets
from .authors_data import find_processed
from .choices import Choices
from .devices import Devices
from .evaluating import evaluate
from .origins import check_origin
from .recording import cells_folder, record, results_folder
from .revising import at_each_rate
from .runs import Run, plan
from .storage import check_disk_for_one_run
from .tables import is_drawn
from .training import check_updates, train
from .weights import convert

BANDS = ("adaptive_input_cutoff", "adaptive_softmax_cutoff")  # options of adaptive tables


class Outcome(NamedTuple):
    """Result of a run; ``error`` is None on success."""

    run: Run
    error: Optional[str]


def data_folder(recipe: Recipe, choices: Choices, several: bool) -> Path:
    """Return the folder for the data of a recipe, whether or not they are there.

    Args:
        several: whether the command needs several data sets, so that --data names the folder above them.
    """
    if choices.processed is not None:
        return find_processed(recipe, choices.processed)
    if choices.data is not None and not several:
        return choices.data
    above = choices.data_dir or choices.data or (choices.out / "data" if choices.smoke else None)
    if above is not None:
        return above / datasets.name_beside_others(recipe, choices)
    return choices.root / datasets.usual_folder(recipe, choices)


def read_by_fairseq(recipe: Recipe, folder: Path) -> Path:
    """Return the folder for fairseq: the data's, or data-bin in it."""
    below = Path(recipe.config["task"]["data"]).name == "data-bin" and (folder / "data-bin").is_dir()
    return folder / "data-bin" if below else folder


def folders(recipes: Sequence[Recipe], choices: Choices) -> Dict[str, Path]:
    """The folders of the data that the recipes need, by :attr:`Recipe.place`."""
    needed = by_place(recipes)
    return {place: data_folder(recipe, choices, len(needed) > 1) for place, recipe in needed.items()}


def by_place(recipes: Sequence[Recipe]) -> Dict[str, Recipe]:
    """Return a recipe for each data set that the recipes need, by :attr:`Recipe.place`.

    Raises:
        RecipeError: if two recipes have other data in the same place.
    """
    found: Dict[str, Recipe] = {}
    for recipe in recipes:
        first = recipe if recipe.measured else found.setdefault(recipe.place, recipe)
        if first.data != recipe.data:
            raise RecipeError(
                f"{first.name} has the data '{first.data}' in {recipe.place}, and {recipe.name} '{recipe.data}': give "
                "one of them another folder, task.data"
            )
    return found


def check_choices(recipes: Sequence[Recipe], choices: Choices) -> None:
    """Raise a RecipeError if a setting of the user does not suit one of the recipes."""
    for recipe in recipes:
        plan(recipe, 1, Path(), "", choices)


def check(recipes: Sequence[Recipe], choices: Choices, visible_gpus: int) -> None:
    """Check that everything can be done, so that an error of the last of many trainings is raised before the first one.

    Raises:
        RecipeError: naming all that is missing.
        ValueError: if a requested plot cannot be drawn.
    """
    if choices.gpus > visible_gpus:
        raise RecipeError(
            f"--gpus is {choices.gpus}, but {visible_gpus} are visible: give fewer, or --gpus 0 for the CPU, or look "
            "at CUDA_VISIBLE_DEVICES"
        )
    if choices.gpus == 0 and choices.precision in ("fp16", "tf32"):
        raise RecipeError(f"--precision {choices.precision} needs a GPU: give --gpus, or fp32 or bf16")
    if any(map(is_drawn, recipes)):
        load_pyplot()
    problems = [*evaluation_problems(recipes), *place_problems(choices), *result_problems(choices)]
    places, to_be_made = folders(recipes, choices), set()
    for place, recipe in by_place(recipes).items():
        try:
            dataset_of(recipe).check_readers()
            if choices.processed is None and datasets.is_there(recipe, places[place]):
                check_origin(recipe, places[place], choices)
            elif choices.processed is None:
                to_be_made.add(place)
                datasets.check(recipe, places[place], choices)
        except ValueError as error:
            problems.append(str(error))
    if problems:
        raise RecipeError("; ".join(problems))
    absent = [recipe for recipe in recipes if not recipe.measured and recipe.place in to_be_made]
    check_disk_for_one_run(absent, choices)  # of data that are there, the runs are known, see check_disk


def evaluation_problems(recipes: Sequence[Recipe]) -> List[str]:
    """List the missing requirements of the scoring after the trainings."""
    tokenized = any("tokenized" in recipe.evaluate for recipe in recipes)
    if tokenized and importlib.util.find_spec("sacremoses") is None:
        return ["the scores of translations need sacremoses: run 'bash scripts/setup.sh --extras translation'"]
    return []


def place_problems(choices: Choices) -> List[str]:
    """List the output folders that cannot be written to."""
    found = []
    for option, folder in (("--out", choices.out), ("--results-dir", choices.results)):
        above = None if folder is None else in_the_way_of(folder)
        if above is not None:
            found.append(f"{option} {folder} cannot be made: {above} is not a folder that may be written to")
    return found


def result_problems(choices: Choices) -> List[str]:
    """List the damaged files, and those of others, among the results that the tables read."""
    found = []
    for folder in (results_folder(choices), cells_folder(choices)):
        for path in sorted(folder.glob("*.json")):
            try:
                read_result(path)
            except (OSError, ValueError) as error:
                found.append(f"{error}: move it away")
    return found


def digest_of(recipe: Recipe, folder: Path, choices: Choices) -> str:
    """Return the digest that identifies the existing data of a recipe among others of their kind."""
    if choices.processed is None:
        return dataset_of(recipe).layout.examine(folder).digest
    # whose files may have other names
    files, hidden = files_below(folder)
    return digest_of_data([*files, *filter(Path.is_file, hidden)], folder)


def prepare_all(recipes: Sequence[Recipe], choices: Choices) -> Dict[str, str]:
    """Make the data of recipes that are not there; return the digests by :attr:`Recipe.place`.

    Raises:
        StageError: if a command fails.
    """
    places = folders(recipes, choices)
    return {place: prepare(recipe, places[place], choices) for place, recipe in by_place(recipes).items()}


def prepare(recipe: Recipe, folder: Path, choices: Choices, run_command: Execute = execute) -> str:
    """Make the data of a recipe unless they are there; return their digest.

    Raises:
        StageError: if a command fails.
    """
    dataset = dataset_of(recipe)
    if choices.processed is not None:  # the folder may be read-only
        return digest_of(recipe, folder, choices)
    with made_by_one(folder):
        if not dataset.layout.is_there(folder):
            say(f"{folder} holds no data: making those of {dataset.name}")
            run_command(
                datasets.command(recipe, folder, choices), folder.parent / f".{folder.name}" / "prepare.log", {}
            )
        found = dataset.layout.examine(folder)
        for remark in () if choices.smoke else dataset.remarks(folder, found.examples):
            say(remark)
        return found.digest


def made_by_one(folder: Path) -> ContextManager[None]:
    """Lock a data folder against other runners; without permission to write no lock is needed."""
    if in_the_way_of(folder.parent) is not None:
        return nullcontext()
    return locks.held(folder.parent / f".{folder.name}.lock", str(folder), "runner")


def runs_of(recipes: Sequence[Recipe], seeds: Sequence[int], choices: Choices, digests: Dict[str, str]) -> List[Run]:
    """Return a run for each recipe, learning rate and seed, or one for given weights; their data exist."""
    places = folders(recipes, choices)

    def planned(recipe: Recipe, seed: int) -> Run:
        if recipe.measured:  # on no data
            return plan(recipe, seed, Path(), "", choices)
        folder = places[recipe.place]
        fitted = datasets.fit(recipe, folder)
        return plan(fitted, seed, read_by_fairseq(recipe, folder), digests[recipe.place], choices)

    return [
        planned(variant, seed)
        for recipe in recipes
        for variant in ([recipe] if recipe.name in choices.weights else at_each_rate(recipe))
        for seed in ([0] if recipe.name in choices.weights else seeds or recipe.seeds)
    ]


def with_plain_tables(recipe: Recipe) -> List[str]:
    """Return the names of recipes of the same report and model without adaptive tables."""
    return [
        name
        for name, other in catalogue().items()
        if (other.report, other.config["model"]["_name"]) == (recipe.report, recipe.config["model"]["_name"])
        if not any(other.config["model"].get(band) for band in BANDS)
    ]


def check_bands(runs: Sequence[Run]) -> None:
    """Raise a RecipeError where the adaptive tables of a run have bands beyond the dictionary of its data."""
    sizes: Dict[Path, int] = {}
    for run in runs:
        file = run.data / "dict.txt"
        for name in BANDS:
            option, ends = f"--{name.replace('_', '-')}", run.config.get("model", {}).get(name)
            if ends is None or not file.is_file():
                continue
            if file not in sizes:
                sizes[file] = len(Dictionary.load(str(file)))
            try:
                band_ends(option, ends, sizes[file])
            except ValueError as error:
                plain = with_plain_tables(run.recipe)
                other = f"; or, for bytes and few pieces, train {plain[0]}, which has plain tables" if plain else ""
                raise RecipeError(f"{run.recipe.name}, {file}: {error}, with --set model.{name}{other}") from error


def perform(
    run: Run, choices: Choices, run_command: Execute, devices: List[int], command: str, only_train: bool
) -> None:
    """Train, or convert the weights that are given, evaluate and record a run, as far as that has not been done."""
    choices = choices.suited_to(run.recipe)
    with locks.held(run.folder / "run.lock", str(run.folder), "runner"):
        weights = choices.weights.get(run.recipe.name)
        if weights is not None:
            stage(run.folder, "convert", lambda: convert(run, weights, choices), f"{run.name}.convert")
        elif not run.recipe.measured:
            check_updates(run)
            stage(
                run.folder,
                run.training_stage,
                lambda: train(run, choices, run_command, devices),
                f"{run.name}.{run.training_stage}",
            )
        if only_train:
            return
        stage(
            run.folder,
            run.evaluation_stage,
            lambda: evaluate(run, choices, run_command, devices, command),
            f"{run.name}.evaluate{run.stop}",
        )
        record(run, choices)
        (run.folder / FAILED).unlink(missing_ok=True)


def note_failure(run: Run, error: str) -> None:
    """Write the failure to a run's folder for the reports; a later success removes it."""
    about = {"recipe": run.recipe.name, "seed": run.seed, "error": error, "smoke": run.smoke}
    write_json(run.folder / FAILED, about)


def perform_all(
    runs: Sequence[Run], choices: Choices, command: str, run_command: Execute = execute, only_train: bool = False
) -> List[Outcome]:
    """Do all runs, as many at a time as there are GPUs for; one that fails does not stop the others."""
    devices = Devices(choices.gpus)

    def one(run: Run) -> Outcome:
        with devices.lent(run.gpus) as lent:
            try:
                perform(run, choices, run_command, lent, command, only_train)
            except (StageError, OSError, ValueError) as error:
                say(f"{run.name}: failed: {error}")
                note_failure(run, str(error))
                return Outcome(run, str(error))
        return Outcome(run, None)

    with ThreadPoolExecutor(max(1, choices.gpus)) as pool:
        return list(pool.map(one, runs))


def same_work(runs: Sequence[Run]) -> List[Run]:
    """Return each training with its evaluations once: a number in two tables is one run."""
    found: Dict[Tuple[str, str], Run] = {}
    for run in runs:
        found.setdefault((run.name, run.recipe.report), run)
    return list(found.values())
