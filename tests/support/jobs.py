"""Jobs of recipes with settings of a user, on data that need not be there."""

from pathlib import Path
from typing import Any, Union

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.reproduce.jobs import Job, plan
from fairseq_mega.lab.reproduce.settings import Choices, parse_setting, revise

TEXT, FIGURE6 = "mega/table2/text/mega", "mega/figure6/wikitext103/mega"
PANELS = "[{segments: [4], chunk_size: [16]}, {segments: [2], chunk_size: [16]}]"


def run_of(
    recipe: Union[str, Recipe], folder: Path, *texts: str, seed: int = 1, digest: str = "0", **chosen: Any
) -> Job:
    """Return the job of a recipe, with texts of --set and other settings, on data of a digest."""
    settings = tuple(map(parse_setting, texts))
    known = catalogue()[recipe] if isinstance(recipe, str) else recipe
    return plan(revise(known, settings), seed, Path("data"), digest, Choices(folder, settings=settings, **chosen))
