"""The learning rate of a recipe, chosen by short trainings: the accuracy on the validation set decides."""

from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Sequence

from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.recipes.smoke import UPDATES
from fairseq_mega.lab.runs.stages import marker_of
from fairseq_mega.lab.runs.training_log import read_log, read_training

from .jobs import Job, plan
from .settings import Choices, at_each_rate


def searches(recipe: Recipe, place: Path, digest: str, choices: Choices) -> List[Job]:
    """Return a short training at each learning rate of a recipe, by a schedule that is shortened alike.

    The list is empty where the number's own trainings choose, or there is one learning rate only.

    Args:
        place, digest: of the data.
    """
    if not recipe.rate_updates or len(recipe.rates) < 2:
        return []
    whole = choices.max_update or (UPDATES[recipe.evaluate["kind"]] if choices.smoke else recipe.updates)
    updates = max(1, recipe.rate_updates * whole // recipe.updates)
    short = replace(choices, max_update=updates)
    return [plan(variant, recipe.seeds[0], place, digest, short) for variant in at_each_rate(recipe)]


def tried(jobs: Sequence[Job]) -> Dict[float, float]:
    """Return the best accuracy on the validation set at each learning rate, of the trainings that have ended."""
    found = {}
    for job in jobs:
        if marker_of(job.folder, "train").exists():
            log = job.folder / "train.log"
            found[job.rate] = read_training(read_log(log), str(log)).best.accuracy
    return found


def chosen(recipe: Recipe, jobs: Sequence[Job]) -> List[Recipe]:
    """Return the recipe at the learning rate of the best of some trainings, of equally good ones the first; at its
    first rate before all have ended; without such trainings the recipe at each rate.
    """
    variants, found = at_each_rate(recipe), tried(jobs)
    if not jobs:
        return variants
    best = max(found, key=found.__getitem__) if len(found) == len(jobs) else jobs[0].rate
    return [variant for job, variant in zip(jobs, variants) if job.rate == best]
