"""Data that are there: those of a recipe are taken, invented and other ones are refused."""

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.datasets import fit
from fairseq_mega.lab.reproduce.origins import check_origin
from tests.support.in_process import in_process  # noqa: F401
from tests.support.prepare_runs import prepare

FILE = {"file": "train.tsv.gz", "bytes": 9, "contents": "82dcf169"}
LISTOPS, MINIATURE, FIGURE1 = "mega/table2/listops/mega", "miniature/listops/mega", "megalodon/figure1/gcide/llama"
TAKEN: Dict[str, Dict[str, Any]] = {  # settings of the data of recipes
    LISTOPS: {"dataset": "listops", "min_length": 500, "max_length": 2000, "seed": 7},
    MINIATURE: {"dataset": "listops", "min_length": 20, "max_length": 64},
    "mega/table2/text/mega": {"dataset": "imdb", "tsv_train": FILE, "tsv_test": FILE, "length": 4000},
    "mega/table4/speech/base": {"dataset": "speech-commands", "scaling": "whole"},
    "mega/table5/enwik8/mega": {},
    "comparison/listops/mega": {"dataset": "listops", "count": 200, "max_length": 60},  # any of a person's own
}
OTHERS = {
    "trees": (LISTOPS, {"dataset": "listops", "min_length": 20}, "--min-length 20 in place of 500"),
    "count": (LISTOPS, {"dataset": "listops", "count": 200}, "--count 200 in place of "),
    "miniature": (
        MINIATURE,
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
        (LISTOPS, "own-texts"),
        ("mega/table5/enwik8/mega", "text-lm"),
        (MINIATURE, "own-texts"),
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
            check_origin(catalogue()[LISTOPS], tmp_path / below, choices)
    else:
        check_origin(catalogue()[LISTOPS], tmp_path / below, choices)


def test_data_of_a_smoke_run_are_not_taken_for_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    prepare("listops", "--smoke", "--out", tmp_path / "listops").succeeded()
    words = ["table2/listops/mega", "--gpus", "0", "--seeds", "1", "--max-update", "1", "--out", str(tmp_path / "out")]
    assert main([*words, "--data", str(tmp_path / "listops")]) == 1
    assert "--smoke" in capsys.readouterr().err
    assert not list(tmp_path.rglob("checkpoint*.pt"))


@pytest.mark.parametrize("labels", [["bad", "good"], ["very bad", "very good", "so so"]])
def test_classes_of_own_texts_are_counted(labels: List[str], tmp_path: Path) -> None:
    """Labels may have several words; symbols that fill a dictionary up are none."""
    folder = tmp_path / "label-bin"
    folder.mkdir()
    lines = [*(f"{label} 7\n" for label in labels), "madeupword0000 0\n"]
    (folder / "dict.txt").write_text("".join(lines), encoding="utf-8")
    fitted = fit(catalogue()["comparison/text/mega"], tmp_path)
    assert fitted.config["model"]["sentence_class_num"] == len(labels)
