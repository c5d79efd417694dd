"""Jobs of recipes with settings of a user, on data that need not be there."""

from pathlib import Path
from typing import Any

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce.jobs import Job, plan
from fairseq_mega.lab.reproduce.settings import Choices, parse_setting, revise

TEXT, FIGURE6 = "mega/table2/text/mega", "mega/figure6/wikitext103/mega"
PANELS = "[{segments: [4], chunk_size: [16]}, {segments: [2], chunk_size: [16]}]"


def run_of(name: str, folder: Path, *texts: str, **chosen: Any) -> Job:
    """Return the job of a recipe, with texts of --set and other settings."""
    settings = tuple(map(parse_setting, texts))
    return plan(revise(catalogue()[name], settings), 1, Path("data"), "0", Choices(folder, settings=settings, **chosen))
