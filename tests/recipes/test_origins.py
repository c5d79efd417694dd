"""Data that are there: those of a recipe are taken, made-up and other ones are refused."""

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.datasets import DATASETS
from fairseq_mega.lab.reproduce.origins import check_origin
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare

FILE = {"file": "train.tsv.gz", "bytes": 9, "contents": "82dcf169"}
TAKEN: Dict[str, Dict[str, Any]] = {  # settings of data sets
    "listops": {"dataset": "listops", "min_length": 500, "max_length": 2000, "seed": 7},
    "miniature-listops": {"dataset": "listops", "min_length": 20, "max_length": 64},
    "imdb": {"dataset": "imdb", "tsv_train": FILE, "tsv_test": FILE, "length": 4000},
    "speech-commands": {"dataset": "speech-commands", "scaling": "whole"},
    "enwik8": {},
    "compare-listops": {"dataset": "listops", "count": 200, "max_length": 60},  # any of a person's own
}
OTHERS = {
    "trees": ("listops", {"dataset": "listops", "min_length": 20}, "--min-length 20 in place of 500"),
    "count": ("listops", {"dataset": "listops", "count": 200}, "--count 200 in place of "),
    "miniature": ("miniature-listops", {"dataset": "listops", "max_length": 2000}, "--max-length 2000 in place of 64"),
    "limit": ("imdb", {"dataset": "imdb", "limit": [9, 9, 9]}, "--limit [9, 9, 9] in place of none"),
    "side": ("cifar10", {"dataset": "cifar10", "side": 16}, "--side 16 in place of "),
    "version": ("wikitext-103", {"dataset": "wikitext", "version": 2}, "--version 2 in place of 103"),
    "held out": ("gcide-bytes-16m", {"dataset": "gcide", "held_out": 0.5}, "--held-out 0.5 in place of 0.025"),
}


def note(folder: Path, settings: Any) -> None:
    (folder / "SOURCE.json").write_text(json.dumps({"origin": "generated", "settings": settings}))


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("below", ["", "data-bin"])
def test_data_of_a_recipe_are_taken(name: str, below: str, tmp_path: Path) -> None:
    """Whatever the raw files, the draw, and what an earlier version did not note."""
    note(tmp_path, TAKEN[name])
    check_origin(name, tmp_path / below, Choices(tmp_path / "out"))


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("below", ["", "data-bin"])
def test_other_data_are_refused(case: str, below: str, tmp_path: Path) -> None:
    name, settings, said = OTHERS[case]
    note(tmp_path, settings)
    with pytest.raises(RecipeError, match="holds other data than the recipe's") as refused:
        check_origin(name, tmp_path / below, Choices(tmp_path / "out"))
    assert said in str(refused.value)
    check_origin(name, tmp_path / below, Choices(tmp_path / "out", smoke=True))


@pytest.mark.parametrize("below", ["", "data-bin"])
@pytest.mark.parametrize(
    ("settings", "smoke", "refused"),
    [
        ({"dataset": "listops", "smoke": True}, False, True),
        ({"dataset": "listops", "smoke": True}, True, False),
        ({"dataset": "listops"}, False, False),
        (None, False, False),
    ],
)
def test_made_up_data_are_for_smoke_runs_alone(
    settings: Any, smoke: bool, refused: bool, below: str, tmp_path: Path
) -> None:
    (tmp_path / "SOURCE.json").write_text(json.dumps({"origin": "generated", "settings": settings}))
    choices = Choices(tmp_path / "out", smoke=smoke)
    if refused:
        with pytest.raises(RecipeError, match="holds data that --smoke made up: give another folder"):
            check_origin("listops", tmp_path / below, choices)
    else:
        check_origin("listops", tmp_path / below, choices)


def test_data_of_a_smoke_run_are_not_taken_for_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("listops", "--smoke", "--out", tmp_path / "listops").succeeded()
    words = ["table2/listops/mega", "--gpus", "0", "--seeds", "1", "--max-update", "1", "--out", str(tmp_path / "out")]
    assert main([*words, "--data", str(tmp_path / "listops")]) == 1
    assert "listops holds data that --smoke made up" in capsys.readouterr().err
    assert not list(tmp_path.rglob("checkpoint*.pt"))


@pytest.mark.parametrize("labels", [["bad", "good"], ["very bad", "very good", "so so"]])
def test_classes_of_own_texts_are_counted(labels: List[str], tmp_path: Path) -> None:
    """Labels may have several words; symbols that fill a dictionary up are none."""
    folder = tmp_path / "label-bin"
    folder.mkdir()
    lines = [*(f"{label} 7\n" for label in labels), "madeupword0000 0\n"]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    recipe = next(recipe for recipe in catalogue().values() if recipe.data == "compare-text")
    fitted = DATASETS[recipe.data].fit(recipe, tmp_path)
    assert fitted.config["model"]["sentence_class_num"] == len(labels)
