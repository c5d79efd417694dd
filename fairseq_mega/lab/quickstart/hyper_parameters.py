"""What the trainings of the quick start are set to: their recipes, or a tiny form of them."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.lab.recipes.command_line import arguments
from fairseq_mega.lab.recipes.recipe import FOLDER, GROUPS, Recipe, load

TIME = {
    "optimization": ("max_update", "stop_time_hours"),
    "dataset": ("validate_interval", "validate_interval_updates"),
}
LEFT_OUT = ("lr_scheduler", "checkpoint", "distributed_training")  # groups, see quickstart.training


def recipe_of(task: str, smoke: Dict[str, Dict[str, Any]]) -> Recipe:
    """The recipe of a task, translation or lm; values of ``smoke`` stand in place of its own."""
    recipe = load(FOLDER / "quickstart" / f"{task}.yaml")
    config = copy.deepcopy(recipe.config)
    for group, options in smoke.items():
        config[group].update(options)
    return replace(recipe, config=config)


def training_words(recipe: Recipe, data: Path) -> List[str]:
    """The command line of a training without what the time, the machine and the folder of the work say."""
    config = copy.deepcopy(recipe.config)
    config["task"]["data"] = str(data)
    config["common"] = {"seed": config["common"]["seed"]}
    for group, options in TIME.items():
        for option in options:
            del config[group][option]
    return arguments(config, recipe.preset, [group for group in GROUPS if group not in LEFT_OUT])


def kept_settings(recipe: Recipe) -> List[str]:
    """A line for each group of options, which a folder that was begun with other ones does not have."""
    return [f"{group} {recipe.config[group]}" for group in GROUPS]
