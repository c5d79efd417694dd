"""The data of recipes: words of fairseq-mega-prepare, folders of their forms, and other data, which are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published, settings_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError, load
from fairseq_mega.lab.reproduce import data
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import check_origin, fit
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support.in_process import in_process  # noqa: F401

LISTOPS, MINIATURE = catalogue()["mega/table2/listops/mega"], catalogue()["miniature/listops/mega"]


def in_folder(recipe: Recipe, folder: str) -> Recipe:
    return replace(recipe, config={**recipe.config, "task": {**recipe.config["task"], "data": folder}})


def test_the_data_of_every_recipe_can_be_made() -> None:
    for recipe in {recipe.data: recipe for recipe in catalogue().values()}.values():
        assert settings_of(recipe) and dataset_of(recipe).toy is not None, recipe.name


def test_options_at_their_defaults_are_the_published_data() -> None:
    assert is_published(LISTOPS) and is_published(replace(LISTOPS, data="listops --max-length 2000"))
    assert not is_published(MINIATURE) and not is_published(replace(LISTOPS, own_data=True))


def test_the_data_of_every_recipe_fit() -> None:
    """Their words are no part of what a run depends on, as its place in a report implies them."""
    for recipe in catalogue().values():
        check_data(recipe)
        assert "made by" not in plan(recipe, 1, Path("data"), "0", Choices(Path("out"))).settings


OTHER_DATA = {  # a recipe, what replaces parts of its file, and the error
    "task": ("{data: cifar10}", "", "which the task lra-text does not read: give other data, or task._name lra-image"),
    "place": ("{data: imdb}", "", "and outputs/lra/listops is the folder of 'listops': give task.data another folder"),
    "number": ("{data: imdb}", "task: {data: outputs/mine}", "and table2 shows its number for 'listops'"),
    "cell": ("{cell: {task: text}}", "task: {data: outputs/mine}", "and table2 shows its number for 'imdb'"),
    "unknown": ("{data: list-ops}", "", "'data' is 'list-ops': begin with one of listops, imdb"),
}


def own_file(folder: Path, name: str, recipe: str, more: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"defaults: [/mega/table2/listops/mega@_global_, _self_]\nrecipe: {recipe}\n{more}\n")
    return path


@pytest.mark.parametrize("case", OTHER_DATA)
def test_data_that_do_not_fit_are_refused_first(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In one line with the file; else a table shows the number of other data, or a training of hours cannot begin."""
    recipe, more, said = OTHER_DATA[case]
    path = own_file(tmp_path, "mine", recipe, more)
    assert main([str(path), "--smoke", "--gpus", "0", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err.splitlines()
    assert len(error) == 1 and f"error: {path}: " in error[0] and said in error[0]
    assert not (tmp_path / "out").exists()


def test_other_data_are_another_run(tmp_path: Path) -> None:
    """Whatever the folder contains; words for the same data fit a known place."""
    files = [
        own_file(tmp_path, name, f"{{data: {words}, cell: {{task: mine}}}}", "task: {data: outputs/mine}")
        for name, words in (("one", "imdb"), ("two", "imdb --length 9"))
    ]
    runs = [plan(load(path), 1, tmp_path, "0", Choices(tmp_path)) for path in files]
    assert runs[0].name != runs[1].name and runs[0].folder != runs[1].folder
    same = own_file(tmp_path, "same", "{data: listops --max-length 2000}", "")
    check_data(load(same))
    assert (
        plan(load(same), 1, tmp_path, "0", Choices(tmp_path)).name
        == plan(LISTOPS, 1, tmp_path, "0", Choices(tmp_path)).name
    )


@pytest.mark.parametrize(
    ("recipe", "name"),
    [
        (LISTOPS, "listops"),
        (MINIATURE, "miniature-listops"),
        (in_folder(MINIATURE, "outputs/short/data-bin"), "short"),
        (in_folder(MINIATURE, "short"), "short"),
    ],
)
def test_a_form_lies_beside_the_published_data(recipe: Recipe, name: str, tmp_path: Path) -> None:
    assert data.name_beside_others(recipe, Choices(tmp_path)) == name


def test_one_place_has_one_data_set(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'listops' in outputs/lra/listops"):
        data.folders([LISTOPS, in_folder(MINIATURE, LISTOPS.place)], Choices(tmp_path))


FILE = {"file": "train.tsv.gz", "bytes": 9, "contents": "82dcf169"}
FIGURE1 = "megalodon/figure1/gcide/llama"
TAKEN: Dict[str, Dict[str, Any]] = {  # settings of the data of recipes
    LISTOPS.name: {"dataset": "listops", "min_length": 500, "max_length": 2000, "seed": 7},
    MINIATURE.name: {"dataset": "listops", "min_length": 20, "max_length": 64},
    "mega/table2/text/mega": {"dataset": "imdb", "tsv_train": FILE, "tsv_test": FILE, "length": 4000},
    "mega/table4/speech/base": {"dataset": "speech-commands", "scaling": "whole"},
    "mega/table5/enwik8/mega": {},
    "comparison/listops/mega": {"dataset": "listops", "count": 200, "max_length": 60},  # any of a person's own
}
OTHERS = {
    "trees": (LISTOPS.name, {"dataset": "listops", "min_length": 20}, "--min-length 20 in place of 500"),
    "limit": ("mega/table2/text/mega", {"dataset": "imdb", "limit": [9, 9, 9]}, "--limit [9, 9, 9] in place of none"),
    "held out": (
        FIGURE1,
        {"dataset": "gcide", "held_out": 0.5},
        "--held-out 0.5 in place of 0.025",
    ),
}


def note(folder: Path, settings: Any) -> None:
    (folder / "SOURCE.json").write_text(json.dumps({"origin": "generated", "settings": settings}))


@pytest.mark.parametrize("name", TAKEN)
@pytest.mark.parametrize("below", ["", "data-bin"])
def test_data_of_a_recipe_are_taken(name: str, below: str, tmp_path: Path) -> None:
    """Whatever the raw files, the draw, and what an earlier version did not note."""
    note(tmp_path, TAKEN[name])
    check_origin(catalogue()[name], tmp_path / below, Choices(tmp_path / "out"))


@pytest.mark.parametrize("case", OTHERS)
@pytest.mark.parametrize("below", ["", "data-bin"])
def test_other_data_are_refused(case: str, below: str, tmp_path: Path) -> None:
    name, settings, said = OTHERS[case]
    note(tmp_path, settings)
    with pytest.raises(RecipeError, match="other data") as refused:
        check_origin(catalogue()[name], tmp_path / below, Choices(tmp_path / "out"))
    assert said in str(refused.value)
    check_origin(catalogue()[name], tmp_path / below, Choices(tmp_path / "out", smoke=True))


@pytest.mark.parametrize("smoke", [False, True])
@pytest.mark.parametrize(
    ("name", "other"),
    [
        (LISTOPS.name, "own-texts"),
        ("mega/table5/enwik8/mega", "text-lm"),
        ("quickstart/lm", "text-lm"),
    ],
)
def test_data_of_another_data_set_are_refused(name: str, other: str, smoke: bool, tmp_path: Path) -> None:
    """They fit the model, and their score would stand in the recipe's table; our own comparisons accept them."""
    note(tmp_path, {"dataset": other, "smoke": smoke})
    choices = Choices(tmp_path / "out", smoke=smoke)
    with pytest.raises(RecipeError, match=f"{other}, and {name}"):
        check_origin(catalogue()[name], tmp_path, choices)
    for comparison in ("listops", "bytes", "wikitext2"):
        check_origin(catalogue()[f"comparison/{comparison}/mega"], tmp_path, choices)


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
    for recipe in (LISTOPS, catalogue()["comparison/text/mega"]):  # the second one accepts other data sets
        if refused:
            with pytest.raises(RecipeError, match="--smoke"):
                check_origin(recipe, tmp_path / below, choices)
        else:
            check_origin(recipe, tmp_path / below, choices)


@pytest.mark.parametrize("labels", [["bad", "good"], ["very bad", "very good", "so so"]])
def test_classes_of_own_texts_are_counted(labels: List[str], tmp_path: Path) -> None:
    """Labels may have several words; tokens that fill a dictionary up are none."""
    folder = tmp_path / "label-bin"
    folder.mkdir()
    lines = [*(f"{label} 7\n" for label in labels), "madeupword0000 0\n"]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    fitted = fit(catalogue()["comparison/text/mega"], tmp_path)
    assert fitted.config["model"]["sentence_class_num"] == len(labels)
