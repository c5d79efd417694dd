"""The data of recipes: words of fairseq-mega-prepare, folders of their forms, and other data, which are refused."""

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.prepare.of_recipes import check_data, dataset_of, is_published, settings_of
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError, load
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import Data, data_of, folder_of
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support import tiny_images
from tests.support.jobs import run_of

LISTOPS, MINIATURE = catalogue()["mega/table2/listops/mega"], catalogue()["miniature/listops/mega"]


def in_folder(recipe: Recipe, folder: str) -> Recipe:
    return replace(recipe, config={**recipe.config, "task": {**recipe.config["task"], "data": folder}})


def test_the_data_of_every_recipe_fit_and_can_be_made() -> None:
    """Their words are no part of what a run depends on, as its place in a report implies them."""
    for recipe in catalogue().values():
        check_data(recipe)
        assert settings_of(recipe) and dataset_of(recipe).toy is not None, recipe.name
        assert "made by" not in run_of(recipe, Path("out")).settings, recipe.name
    assert is_published(LISTOPS) and is_published(replace(LISTOPS, data="listops --max-length 2000"))
    assert not is_published(MINIATURE) and not is_published(replace(LISTOPS, own_data=True))


OTHER_DATA = {  # a recipe, what replaces parts of its file, and the error
    "task": ("{data: cifar10}", "", "task._name"),
    "place": ("{data: imdb}", "", "task.data"),
    "number": ("{data: imdb}", "task: {data: outputs/mine}", "table2"),
    "cell": ("{cell: {task: text}}", "task: {data: outputs/mine}", "table2"),
    "unknown": ("{data: list-ops}", "", "'data'"),
}


def own_file(folder: Path, name: str, recipe: str, more: str) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(f"defaults: [/mega/table2/listops/mega@_global_, _self_]\nrecipe: {recipe}\n{more}\n")
    return path


@pytest.mark.parametrize("case", OTHER_DATA)
def test_data_that_do_not_fit_are_refused_first(case: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else a table shows the number of other data, or a training of hours cannot begin."""
    recipe, more, said = OTHER_DATA[case]
    path = own_file(tmp_path, "mine", recipe, more)
    assert main([str(path), "--smoke", "--gpus", "0", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert f"error: {path}: " in error and said in error and not (tmp_path / "out").exists()


def test_other_data_are_another_run(tmp_path: Path) -> None:
    """Whatever the folder contains; words for the same data fit a known place."""
    files = [
        own_file(tmp_path, name, f"{{data: {words}, cell: {{task: mine}}}}", "task: {data: outputs/mine}")
        for name, words in (("one", "imdb"), ("two", "imdb --length 9"))
    ]
    runs = [run_of(load(path), tmp_path) for path in files]
    assert runs[0].name != runs[1].name and runs[0].folder != runs[1].folder
    same = load(own_file(tmp_path, "same", "{data: listops --max-length 2000}", ""))
    check_data(same)
    assert run_of(same, tmp_path).name == run_of(LISTOPS, tmp_path).name


def test_a_place_has_one_data_set_and_a_form_lies_beside_the_published_data(tmp_path: Path) -> None:
    several = Choices(tmp_path, data=tmp_path)
    short = [in_folder(MINIATURE, place) for place in ("outputs/short/data-bin", "short")]
    names = [folder_of(recipe, several, True).name for recipe in (LISTOPS, MINIATURE, *short)]
    assert names == ["listops", "miniature-listops", "short", "short"]
    with pytest.raises(RecipeError, match=LISTOPS.place):
        data_of([LISTOPS, in_folder(MINIATURE, LISTOPS.place)], several)


FILE = {"file": "train.tsv.gz", "bytes": 9, "contents": "82dcf169"}
COMPARISON = "comparison/listops/mega"  # accepts any data, the invented apart
RIGHT: List[Any] = [  # recipes and settings of their data: whatever the raw files, the draw, and what is not recorded
    (LISTOPS.name, {"dataset": "listops", "min_length": 500, "max_length": 2000, "seed": 7}),
    (LISTOPS.name, {"dataset": "listops", "released": True}),
    (MINIATURE.name, {"dataset": "listops", "min_length": 20, "max_length": 64}),
    ("mega/table2/text/mega", {"dataset": "imdb", "tsv_train": FILE, "tsv_test": FILE, "length": 4000}),
    ("mega/table4/speech/base", {"dataset": "speech-commands", "scaling": "whole"}),
    ("mega/table5/enwik8/mega", {}),
    (LISTOPS.name, None),
    (COMPARISON, {"dataset": "listops", "count": 200, "max_length": 60}),
    (COMPARISON, {"dataset": "own-texts"}),
    ("comparison/bytes/mega", {"dataset": "text-lm"}),
]
WRONG: List[Any] = [
    (LISTOPS.name, {"dataset": "listops", "min_length": 20}, "--min-length 20 in place of 500"),
    ("mega/table2/text/mega", {"dataset": "imdb", "limit": [9, 9, 9]}, "--limit [9, 9, 9] in place of none"),
    ("megalodon/figure1/gcide/llama", {"dataset": "gcide", "held_out": 0.5}, "--held-out 0.5 in place of 0.025"),
]
OTHER_SETS = [(LISTOPS.name, "own-texts"), ("mega/table5/enwik8/mega", "text-lm"), ("quickstart/lm", "text-lm")]
INVENTED = [(name, {"dataset": "listops", "smoke": True}, "--smoke") for name in (LISTOPS.name, COMPARISON)]


def difference(name: str, folder: Path, settings: Any, smoke: bool = False) -> str:
    """Return the difference of data with certain settings from a recipe's, the same in data-bin."""
    (folder / "SOURCE.json").write_text(json.dumps({"origin": "generated", "settings": settings}))
    choices, places = Choices(folder / "out", smoke=smoke), (folder, folder / "data-bin")
    (found,) = {Data(catalogue()[name], choices, place).difference() for place in places}
    return found


def test_data_of_a_recipe_are_accepted_and_others_refused(tmp_path: Path) -> None:
    """Data of another set fit the model, and their score would stand in the recipe's table."""
    for name, settings in RIGHT:
        assert difference(name, tmp_path, settings) == "", (name, settings)
    for name, settings, said in (*WRONG, *INVENTED):
        assert said in difference(name, tmp_path, settings)
        assert difference(name, tmp_path, settings, smoke=True) == ""
    for name, other in OTHER_SETS:
        for smoke in (False, True):
            assert other in difference(name, tmp_path, {"dataset": other, "smoke": smoke}, smoke)


def test_the_runner_refuses_other_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Data, "make", lambda *given: pytest.fail("they were used"))
    images = tiny_images.write_files(tmp_path / "images", {"train": 6, "val": 3})
    (images / "card.json").write_text(json.dumps({"settings": {"dataset": "imagenet", "smoke": True}}))
    words = ["mega/table6/imagenet/mega", "--gpus", "0", "--data", str(images), "--out", str(tmp_path / "out")]
    assert main(words) == 1
    assert "--smoke" in capsys.readouterr().err and not (tmp_path / "out").exists()


@tiny_images.needs_timm
def test_nothing_is_written_beside_the_images_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared folder may be read alone; otherwise a lock lies beside the data while they are made."""
    images = tiny_images.write_files(tmp_path / "shared" / "imagenet", {"train": 6, "val": 3})
    data = Data(catalogue()["mega/table6/imagenet/mega"], Choices(tmp_path / "out"), images)
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: path != tmp_path / "shared")
        data.make()
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["imagenet"]
    assert "has 6 images of 3 classes, ImageNet has 1,281,167" in capsys.readouterr().err
    data.make()
    assert (tmp_path / "shared" / ".imagenet.lock").exists()


@pytest.mark.parametrize("labels", [["bad", "good"], ["very bad", "very good", "so so"]])
def test_classes_of_own_texts_are_counted(labels: List[str], tmp_path: Path) -> None:
    """Labels may have several words; tokens that fill a dictionary up are none."""
    (tmp_path / "label-bin").mkdir()
    lines = [*(f"{label} 7\n" for label in labels), "madeupword0000 0\n"]
    (tmp_path / "label-bin" / "dict.txt").write_text("".join(lines), encoding="utf-8")
    fitted: Dict[str, Any] = Data(catalogue()["comparison/text/mega"], Choices(tmp_path), tmp_path).fitted().config
    assert fitted["model"]["sentence_class_num"] == len(labels)
