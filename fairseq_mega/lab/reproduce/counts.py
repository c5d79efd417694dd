"""Sizes and work of the recipes: of the package's from a table, of others counted on their models.

recipes/counts.json has them for every recipe of the package, so that a list builds no model. After a change of a recipe
or a model, ``python -c "from fairseq_mega.lab.reproduce import counts; counts.write()"`` writes it again.
"""

import json
from functools import lru_cache
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import FOLDER, Recipe

FILE = FOLDER / "counts.json"
SENTENCE = 256  # assumed positions of a translation


class Counts(NamedTuple):
    """Size and work of a recipe, for the order of magnitude."""

    parameters: int  # of its model
    operations: int  # floating-point operations of an update, forward and backward; of a speed, of its measurement
    drawn: bool  # whether its report is a plot


def counts_of(recipe: Recipe) -> Counts:
    """Return the counts of a recipe, from the table if it is the package's own."""
    own = catalogue().get(recipe.name)
    return counted(recipe) if own is None or sized(own) != sized(recipe) else Counts(*table()[recipe.name])


def sized(recipe: Recipe) -> List[Any]:
    """Return what the counts of a recipe depend on."""
    groups = [recipe.config[group] for group in ("task", "model", "dataset", "distributed_training")]
    return [recipe.report, recipe.data, recipe.evaluate, recipe.config["optimization"]["update_freq"], *groups]


@lru_cache(maxsize=None)
def table() -> Dict[str, Any]:
    """Return the counts of the recipes of the package by their names."""
    found: Dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def counted(recipe: Recipe) -> Counts:
    """Count on the model of a recipe; a backward pass is two forward passes."""
    from fairseq_mega.lab.inspect.recipe_models import model_of
    from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
    from fairseq_mega.models import cost

    from .tables import is_drawn

    model, config = model_of(recipe), recipe.config
    scored = dataset_of(recipe).scored if is_published(recipe) else None
    length = longest(config["task"].get("tokens_per_sample"), config["model"])
    if scored is not None and scored.mean_length is not None:
        length = round(scored.mean_length)
    each, documents = cost.operations(model, length), getattr(model, "documents", 1)
    if recipe.measured:
        passes = 4 if config["model"].get("checkpoint_activations") else 3  # one forward pass is made again
        evaluation = recipe.evaluate
        once = sum(passes * length * cost.operations(model, length) for length in evaluation["lengths"])
        operations = once * (evaluation["repeat"] + 1)
    else:
        tokens = config["dataset"].get("max_tokens") or config["dataset"]["batch_size"] * length * documents
        operations = 3.0 * each * tokens * recipe.gpus * config["optimization"]["update_freq"][0]
    return Counts(cost.parameters(model), round(operations), is_drawn(recipe))


def longest(block: Optional[int], model: Mapping[str, Any]) -> int:
    """Positions of a sequence of a recipe: of a block of text, of a classifier's input, of an image, of a sentence."""
    if "patch_size" in model:
        from fairseq_mega.modules.images import patch_count

        return patch_count(model["image_size"], model["patch_size"])
    return int(block or model.get("max_positions") or SENTENCE)


def text() -> str:
    """Return the text of the table: a line for each recipe of the package."""
    rows = [f"{json.dumps(name)}: {json.dumps(counted(recipe))}" for name, recipe in catalogue().items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def write() -> None:
    """Write the table again."""
    FILE.write_text(text(), encoding="utf-8")
