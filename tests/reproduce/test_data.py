"""The data of recipes: words of fairseq-mega-prepare, folders of their forms, and other data, which are refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published, settings_of
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError, load
from fairseq_mega.lab.reproduce import data
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import check_origin, fit
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare

LISTOPS, MINIATURE = catalogue()["mega/table2/listops/mega"], catalogue()["miniature/listops/mega"]


def in_folder(recipe: Recipe, folder: str) -> Recipe:
    return replace(recipe, config={**recipe.config, "task": {**recipe.config["task"], "data": folder}})


def test_the_data_of_every_recipe_can_be_made() -> None:
    for recipe in {recipe.data: recipe for recipe in catalogue().values()}.values():
        assert settings_of(recipe) and dataset_of(recipe).toy is not None, recipe.name


@pytest.mark.parametrize(
    ("words", "said"),
    [("list-ops", "begin with one of listops, imdb"), ("listops --lenght 3", "unrecognized arguments: --lenght 3")],
)
def test_unknown_data_are_refused(words: str, said: str) -> None:
    with pytest.raises(RecipeError, match=f"mega/table2/listops/mega: 'data' is '{words}': {said}"):
        settings_of(replace(LISTOPS, data=words))


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
    "pages": ("{data: wmt16}", "", "which the task lra-text does not read: give other data, or task._name translation"),
    "place": ("{data: imdb}", "", "and outputs/lra/listops is the folder of 'listops': give task.data another folder"),
    "form": ("{data: listops --min-length 20}", "", "and outputs/lra/listops is the folder of 'listops'"),
    "pairs": ("{data: aan}", "task: {data: outputs/mine}", "and table2 shows its number for 'listops'"),
    "number": ("{data: imdb}", "task: {data: outputs/mine}", "and table2 shows its number for 'listops'"),
    "own": ("{own_data: true}", "task: {data: outputs/mine}", "'data' is 'listops' of one's own, and table2 shows"),
    "any": ("{any_data: true}", "", "'data' is 'listops' or any others, and outputs/lra/listops is the folder of"),
    "cell": ("{cell: {task: text}}", "task: {data: outputs/mine}", "and table2 shows its number for 'imdb'"),
    "unknown": ("{data: list-ops}", "", "'data' is 'list-ops': begin with one of listops, imdb"),
    "words": ("{data: listops --lenght 3}", "", "'data' is 'listops --lenght 3': unrecognized arguments: --lenght 3"),
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


def test_a_report_about_one_data_set_shows_any_task() -> None:
    recipe = catalogue()["mega/table7/en-de/mega_softmax"]
    config = {**recipe.config, "task": {**recipe.config["task"], "data": "outputs/mine"}}
    with pytest.raises(RecipeError, match="table7 .*'wmt16'"):
        check_data(replace(recipe, data="help-pairs", config=config, cell={**recipe.cell, "task": "help"}))


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


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.exhaustive] * (name == "wmt16"))  # test_runner.py makes its data, too
        for name, dataset in DATASETS.items()
        if dataset.toy is not None
    ],
)
@pytest.mark.usefixtures("in_process")
def test_made_data_are_found(name: str, tmp_path: Path) -> None:
    """The files of the record are those of a finished folder; one that is missing makes it incomplete."""
    dataset = DATASETS[name]
    try:
        dataset.check_packages()
    except ValueError as error:
        pytest.skip(str(error))
    folder = tmp_path / "data"
    assert not dataset.layout.is_there(folder)
    prepare(name, "--smoke", "--out", folder).succeeded()
    assert dataset.layout.is_there(folder)
    dataset.layout.check_no_part(folder, name)
    first = next(iter(dataset.layout.files))
    (folder / first).rename(tmp_path / "elsewhere")
    assert not dataset.layout.is_there(folder) and dataset.layout.missing(folder) == (first,)
    with pytest.raises(ValueError, match=f"{name} in .*{first}"):
        dataset.layout.check_no_part(folder, name)


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
    "count": (LISTOPS.name, {"dataset": "listops", "count": 200}, "--count 200 in place of "),
    "miniature": (
        MINIATURE.name,
        {"dataset": "listops", "max_length": 2000},
        "--max-length 2000 in place of 64",
    ),
    "limit": ("mega/table2/text/mega", {"dataset": "imdb", "limit": [9, 9, 9]}, "--limit [9, 9, 9] in place of none"),
    "side": ("mega/table2/image/mega", {"dataset": "cifar10", "side": 16}, "--side 16 in place of "),
    "version": ("mega/table5/wikitext103/mega", {"dataset": "wikitext", "version": 2}, "--version 2 in place of 103"),
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
        (MINIATURE.name, "own-texts"),
        (FIGURE1, "text-lm"),
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
    if refused:
        with pytest.raises(RecipeError, match="--smoke"):
            check_origin(LISTOPS, tmp_path / below, choices)
    else:
        check_origin(LISTOPS, tmp_path / below, choices)


def test_data_of_a_smoke_run_are_not_taken_for_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("listops", "--smoke", "--out", tmp_path / "listops").succeeded()
    words = ["table2/listops/mega", "--gpus", "0", "--seeds", "1", "--max-update", "1", "--out", str(tmp_path / "out")]
    assert main([*words, "--data", str(tmp_path / "listops")]) == 1
    assert "--smoke" in capsys.readouterr().err
    assert not list(tmp_path.rglob("checkpoint*.pt"))


@pytest.mark.parametrize("labels", [["bad", "good"], ["very bad", "very good", "so so"]])
def test_classes_of_own_texts_are_counted(labels: List[str], tmp_path: Path) -> None:
    """Labels may have several words; tokens that fill a dictionary up are none."""
    folder = tmp_path / "label-bin"
    folder.mkdir()
    lines = [*(f"{label} 7\n" for label in labels), "madeupword0000 0\n"]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    fitted = fit(catalogue()["comparison/text/mega"], tmp_path)
    assert fitted.config["model"]["sentence_class_num"] == len(labels)
