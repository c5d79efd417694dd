"""The data of recipes: words of fairseq-mega-prepare, and the folders of their forms."""

from dataclasses import replace
from pathlib import Path

import pytest

from fairseq_mega.lab.prepare.of_recipes import dataset_of, is_published, settings_of
from fairseq_mega.lab.prepare.registry import DATASETS
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.reproduce import datasets, runner
from fairseq_mega.lab.reproduce.choices import Choices
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare

LISTOPS, MINIATURE = catalogue()["mega/table2/listops/mega"], catalogue()["miniature/listops/mega"]


def in_folder(recipe: Recipe, folder: str) -> Recipe:
    return replace(recipe, config={**recipe.config, "task": {**recipe.config["task"], "data": folder}})


@pytest.mark.parametrize("words", sorted({recipe.data for recipe in catalogue().values()}))
def test_the_data_of_every_recipe_can_be_made(words: str) -> None:
    recipe = next(recipe for recipe in catalogue().values() if recipe.data == words)
    assert settings_of(recipe) and dataset_of(recipe).toy is not None


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
    with pytest.raises(RecipeError, match="has the data 'listops' in outputs/lra/listops, and .* give one of them"):
        runner.folders([LISTOPS, in_folder(MINIATURE, LISTOPS.place)], Choices(tmp_path))


def test_what_makes_up_no_data_has_no_smoke_run(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="fairseq-mega-prepare fashion-mnist makes up no data: leave --smoke out"):
        datasets.check(replace(LISTOPS, data="fashion-mnist"), tmp_path, Choices(tmp_path, smoke=True))


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
    with pytest.raises(ValueError, match=f"the data of {name} in .* are incomplete, {first} is missing: complete"):
        dataset.layout.check_no_part(folder, name)
