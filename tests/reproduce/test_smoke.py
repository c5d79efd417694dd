"""Recipes in their tiny form, from the data to a result file and a row of their table or a point of their figure.

With --exhaustive every recipe runs, else some that hold each task and each model of a table once, but for those
that tests of scripts run from the data to the table.
"""

from pathlib import Path
from typing import Dict, List

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue, find_all
from fairseq_mega.lab.recipes.recipe import Recipe
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import data_of
from fairseq_mega.lab.reproduce.runner import jobs_of
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.reproduce.tables import is_drawn
from fairseq_mega.lab.runs.results import read_result
from tests.support.in_process import in_process  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]
GROUPS: Dict[str, List[str]] = {  # recipes with the same report; those of one group are tried together
    **{name: [name] for name in ("table2", "table3", "table4", "table6", "table7", "figure4", "figure5", "miniature")},
    "language models": ["table5", "figure6"],
    "megalodon, language models": ["megalodon/table5", "megalodon/table8", "megalodon/figure5"],
    "megalodon, losses": ["megalodon/figure1"],
    "megalodon, speed": ["megalodon/figure4"],
    "megalodon, images": ["megalodon/table4"],
    "megalodon, classifiers": ["megalodon/table6", "megalodon/table7"],  # of tasks that table2 has
    "quick start": ["quickstart"],
    "comparison of language models": ["comparison/wikitext2", "comparison/bytes"],
    "recall and state tracking": ["comparison/recall", "comparison/tracking", "comparison/needle"],
    "equal budgets": ["comparison/text_budget"],
    "comparison of classifiers": ["comparison/text", "comparison/image", "comparison/listops"],
}
BY_SCRIPTS = (  # tests/end_to_end, and of equal budgets test_runner.py
    *("table4", "table7", "comparison of language models", "comparison of classifiers", "equal budgets"),
)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of all groups: a number of two tables is trained once, and data are made once."""
    return tmp_path_factory.mktemp("smoke")


def test_the_groups_have_every_recipe() -> None:
    found = [recipe.name for names in GROUPS.values() for recipe in find_all(names)]
    assert sorted(found) == sorted(name for name, recipe in catalogue().items())


def few(recipes: List[Recipe]) -> List[Recipe]:
    """Return some of `recipes` that together have every name of a table, a task and a model that `recipes` have."""
    names = {recipe.name: set(enumerate(recipe.name.split("/"))) for recipe in recipes}
    missing, chosen = set().union(*names.values()), set()
    while missing:
        best = max(names, key=lambda name: len(names[name] & missing))
        chosen.add(best)
        missing -= names[best]
    return [recipe for recipe in recipes if recipe.name in chosen]


@pytest.mark.parametrize(
    "group", [pytest.param(group, marks=[pytest.mark.exhaustive] * (group in BY_SCRIPTS)) for group in GROUPS]
)
def test_from_the_data_to_the_table(
    out: Path, group: str, capsys: pytest.CaptureFixture[str], exhaustive: bool
) -> None:
    recipes = find_all(GROUPS[group])
    if not exhaustive and group == "megalodon, classifiers":
        recipes = find_all(["megalodon/table6/listops", "megalodon/table7"])
    elif not exhaustive and group == "figure4":  # points differ in a number alone
        recipes = [recipe for recipe in recipes if recipe.name.rpartition("/")[2] in ("n0", "c16")]
    elif not exhaustive:
        recipes = few(recipes)
    status = main(
        [*(recipe.name for recipe in recipes), "--smoke", "--seeds", "1", "--workers", "1", "--out", str(out)]
    )
    printed = capsys.readouterr()
    assert status == 0, printed.err[-4000:]
    choices = Choices(out.resolve(), out.resolve(), smoke=True)
    runs = jobs_of(recipes, [1], choices, data_of(recipes, choices))
    assert {run.recipe.name for run in runs} == {recipe.name for recipe in recipes}
    for run in runs:
        files = sorted(run.results.glob("*.json"))
        assert files, run.recipe.name
        for metric in run.recipe.paper:
            assert any(metric in read_result(file)["scores"] for file in files), (run.recipe.name, metric)
    assert "SMOKE RUN" in printed.out
    assert not exhaustive or "not yet" not in printed.out
    for name in {recipe.report for recipe in recipes if is_drawn(recipe)}:
        assert (out / f"{name}.png").stat().st_size > 10_000
