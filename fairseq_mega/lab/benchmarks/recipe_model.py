"""The language model of a recipe, with random weights, for the benchmarks of its speed."""

import copy
from argparse import Namespace
from typing import Any

from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.lab.benchmarks.lm_pair import task_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.smoke import shrink


def build_recipe(name: str, symbols: int, longest: int, smoke: bool = False) -> Any:
    """Build the model of a recipe.

    Args:
        name: of the recipe.
        symbols: V.
        longest: positions.
        smoke: in the recipe's tiny form.

    Returns:
        A fairseq language model.

    Raises:
        SystemExit: if the recipe's model is not a language model.
    """
    recipe = catalogue()[name]
    config = copy.deepcopy(recipe.config)
    options = config["model"]
    if not options["_name"].endswith("_lm"):
        raise SystemExit(f"--models {name}: its model, {options['_name']}, is not a language model")
    if smoke:
        shrink(config, recipe.evaluate["kind"])
    options.update(max_target_positions=longest, tokens_per_sample=longest)
    return ARCH_MODEL_REGISTRY[options["_name"]].build_model(Namespace(**options), task_of(symbols))
