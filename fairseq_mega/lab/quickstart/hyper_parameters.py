"""What the trainings of the quick start are set to: their recipes, or a tiny form of them."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import List, Optional

from fairseq_mega.lab.recipes.command_line import arguments, without_user_dir
from fairseq_mega.lab.recipes.recipe import FOLDER, GROUPS, Recipe, load
from fairseq_mega.lab.recipes.smoke import shrink

OF_MACHINE = "distributed_training"  # the group that fairseq decides by the GPUs that there are


def recipe_of(task: str, smoke: bool) -> Recipe:
    """The recipe of a task, translation or lm, or its tiny form."""
    recipe = load(FOLDER / "quickstart" / f"{task}.yaml")
    config = copy.deepcopy(recipe.config)
    if smoke:
        shrink(config, recipe.evaluate["kind"])
    return replace(recipe, config=config)


def training_words(recipe: Recipe, folder: Path, minutes: float, updates: Optional[int]) -> List[str]:
    """The arguments of a training in a work folder, as long as the minutes, or so many updates within them, last."""
    config = copy.deepcopy(recipe.config)
    config["task"]["data"] = str(folder / "data-bin")
    config["checkpoint"]["save_dir"] = str(folder / "checkpoints")
    config["optimization"].update(max_update=updates, stop_time_hours=round(minutes / 60, 6))
    if updates is not None:
        warmup = min(config["lr_scheduler"]["warmup_updates"], (updates + 3) // 4)
        config["lr_scheduler"] = {"_name": "linear_decay", "warmup_updates": warmup, "total_num_update": updates}
    groups = [group for group in GROUPS if group != OF_MACHINE]
    return without_user_dir(arguments(config, recipe.preset, groups))


def kept_settings(recipe: Recipe) -> List[str]:
    """A line for each group of options, which a folder that was begun with other ones does not have."""
    return [f"{group} {recipe.config[group]}" for group in GROUPS]
