"""The data of recipes: words of fairseq-mega-prepare, and the folders of their forms."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published, settings_of
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError, load
from fairseq_mega.lab.reproduce import datasets, runner
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.runs import plan
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
    assert datasets.name_beside_others(recipe, Choices(tmp_path)) == name


def test_one_place_has_one_data_set(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="'listops' in outputs/lra/listops"):
        runner.folders([LISTOPS, in_folder(MINIATURE, LISTOPS.place)], Choices(tmp_path))


def test_what_makes_up_no_data_has_no_smoke_run(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="own-texts .*--smoke"):
        datasets.check(replace(LISTOPS, data="own-texts"), tmp_path, Choices(tmp_path, smoke=True))


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
