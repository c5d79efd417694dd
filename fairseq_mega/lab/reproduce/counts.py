"""Operations of the recipes, for the times of a list: of the package's from a table, of others counted on their models.

recipes/counts.json has them for every recipe of the package, so that a list builds no model. After a change of a recipe
or a model, ``python -c "from fairseq_mega.lab.reproduce import counts; counts.write()"`` writes it again.
"""

import json
from functools import lru_cache
from typing import Dict

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import FOLDER, Recipe

FILE = FOLDER / "counts.json"
SENTENCE = 256  # assumed positions of a translation


@lru_cache(maxsize=None)
def table() -> Dict[str, int]:
    """Return the operations of the recipes of the package by their names."""
    found: Dict[str, int] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def operations_of(recipe: Recipe) -> int:
    """Return the floating-point operations of an update, forward and backward; of a speed, of its measurement.

    They are those of the recipe in the package, whatever settings change it.
    """
    return table()[recipe.name] if recipe.name in table() else counted(recipe)


def counted(recipe: Recipe) -> int:
    """Count on the model of a recipe; a backward pass is two forward passes."""
    from fairseq_mega.lab.inspect.recipe_models import model_of
    from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published
    from fairseq_mega.models import cost
    from fairseq_mega.modules.images import patch_count

    model, config = model_of(recipe), recipe.config
    if recipe.measured:
        passes = 4 if config["model"].get("checkpoint_activations") else 3  # one forward pass is made again
        once = sum(passes * length * cost.operations(model, length) for length in recipe.evaluate["lengths"])
        return round(once * (recipe.evaluate["repeat"] + 1))
    scored = dataset_of(recipe).scored if is_published(recipe) else None
    if scored is not None and scored.mean_length is not None:
        length = round(scored.mean_length)
    elif "patch_size" in config["model"]:
        length = patch_count(config["model"]["image_size"], config["model"]["patch_size"])
    else:
        length = config["task"].get("tokens_per_sample") or config["model"].get("max_positions") or SENTENCE
    examples = recipe.gpus * config["optimization"]["update_freq"][0]
    tokens = config["dataset"].get("max_tokens") or (
        config["dataset"]["batch_size"] * length * getattr(model, "documents", 1)
    )
    return round(3.0 * cost.operations(model, length) * tokens * examples)


def text() -> str:
    """Return the text of the table: a line for each recipe of the package."""
    rows = [f"{json.dumps(name)}: {counted(recipe)}" for name, recipe in catalogue().items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def write() -> None:
    """Write the table again."""
    FILE.write_text(text(), encoding="utf-8")
