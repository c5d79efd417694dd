"""The disk space of checkpoints, and the check before the first run that there is enough for all."""

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence

from fairseq_mega.lab.inspect.recipe_models import parameters
from fairseq_mega.lab.recipes.recipe import Config, Recipe, RecipeError
from fairseq_mega.lab.runs.files import existing_parent
from fairseq_mega.lab.runs.stages import is_done

from .choices import Choices
from .runs import Run

WEIGHT = 4  # bytes: fairseq saves float32
KEPT_BY_OPTIMIZER = {"adam": 8, "nag": 4}  # bytes of each parameter, beside the weight
OTHER_OPTIMIZER = 8
LEAST = 1 << 20  # bytes of a run: logs and results


def kept(checkpoint: Mapping[str, Any]) -> int:
    """Return the most checkpoints in a folder at a time: the last, the best, those kept, and one being written."""
    count = 3
    if checkpoint.get("save_interval_updates"):
        count += checkpoint.get("keep_interval_updates", 0)
    if not checkpoint.get("no_epoch_checkpoints"):
        count += checkpoint.get("keep_last_epochs", 0)
    return count


def bytes_of_run(recipe: Recipe, config: Config) -> int:
    """Bytes of a run's checkpoints, and of the averaged weights where its evaluation has some."""
    if recipe.measured:
        return LEAST
    size = parameters(recipe)
    one = size * (WEIGHT + KEPT_BY_OPTIMIZER.get(config["optimizer"]["_name"], OTHER_OPTIMIZER))
    return LEAST + kept(config["checkpoint"]) * one + ("average" in recipe.evaluate) * size * WEIGHT


def bytes_of_recipe(recipe: Recipe) -> int:
    """Bytes of all trainings of a recipe."""
    return len(recipe.seeds) * max(1, len(recipe.rates)) * bytes_of_run(recipe, recipe.config)


def still_needed(run: Run) -> int:
    """Bytes that a run will write beyond those that it has written."""
    if is_done(run.folder, run.evaluation_stage):
        return 0
    there = sum(path.stat().st_size for path in run.folder.rglob("*") if path.is_file())
    return max(0, (LEAST if run.smoke else bytes_of_run(run.recipe, run.config)) - there)


def free_bytes(folder: Path) -> int:
    """Free bytes of a folder's disk."""
    return shutil.disk_usage(folder).free


def check_disk(runs: Sequence[Run], out: Path, free: Callable[[Path], int] = free_bytes) -> None:
    """Raise a RecipeError unless the checkpoints of all runs fit on their disk.

    Args:
        runs: each training may occur for several reports, and counts once.
        out: the folder of all runs; the nearest existing one above it is examined.
        free: returns the free bytes of a folder's disk.
    """
    needs: Dict[Path, int] = {run.folder: still_needed(run) for run in runs}
    need = sum(needs.values())
    folder = existing_parent(out.resolve())
    found = free(folder)
    if need > found:
        raise RecipeError(
            f"the checkpoints of {len(needs)} runs need {size_of(need)}, and {size_of(found)} are free in {folder}: "
            "free some, give --out on a larger disk, or run fewer recipes or --seeds at a time and remove the "
            "checkpoints of finished runs"
        )


def check_disk_for_one_run(
    recipes: Sequence[Recipe], choices: Choices, free: Callable[[Path], int] = free_bytes
) -> None:
    """Raise a RecipeError where not even one run of each recipe fits: before data are made that may take hours."""
    need = 0 if choices.smoke else sum(bytes_of_run(recipe, recipe.config) for recipe in recipes)
    folder = existing_parent(choices.out.resolve())
    if need > free(folder):
        raise RecipeError(
            f"the checkpoints of one run of each recipe need {size_of(need)}, and {size_of(free(folder))} are free in "
            f"{folder}: free some, or give --out on a larger disk"
        )


def size_of(count: float) -> str:
    """A number of bytes in the unit that suits it."""
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
