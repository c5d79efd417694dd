"""Needs of scoring, results and disks are checked before data are made, which may take hours."""

import importlib.util
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional

import pytest

from fairseq_mega.lab.prepare.layouts import Layout
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce import command, runner, storage
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.runs import plan

TRANSLATION, TEXT = "mega/table7/en-de/mega_softmax", "mega/table2/text/mega"


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Lets a package be missing."""
    find = importlib.util.find_spec

    def remove(name: str) -> None:
        monkeypatch.setattr(
            importlib.util, "find_spec", lambda wanted, *a: None if wanted == name else find(wanted, *a)
        )

    return remove


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """All data are there."""
    monkeypatch.setattr(Layout, "is_there", lambda self, folder: True)
    monkeypatch.setattr(runner, "check_origin", lambda *unused: None)


def refusal(name: str, choices: Choices) -> str:
    with pytest.raises(RecipeError) as refused:
        runner.check([catalogue()[name]], choices, choices.gpus)
    return str(refused.value)


def test_what_scores_a_translation(without: Any, there: None, tmp_path: Path) -> None:
    runner.check([catalogue()[TRANSLATION]], Choices(tmp_path), 0)
    without("sacremoses")
    found = refusal(TRANSLATION, Choices(tmp_path))
    assert found == "the scores of translations need sacremoses: run 'bash scripts/setup.sh --extras translation'"
    runner.check([catalogue()[TEXT]], Choices(tmp_path), 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-update", "8", "--set", "lr_scheduler.warmup_updates=10"], "must be above --warmup-updates 10"),
        (["--max-update", "8", "--set", "lr_scheduler.warmup_updates=7"], None),
        (["--max-update", "500", "--set", "lr_scheduler.total_num_update=500"], None),  # the warm-up is shortened
        (["--set", "lr_scheduler.total_num_update=500"], "must be above --warmup-updates"),
        (["--keep-schedule", "--max-update", "8"], None),
    ],
)
@pytest.mark.parametrize("name", [TEXT, "mega/table5/enwik8/mega", TRANSLATION])
def test_a_schedule_that_does_not_fit_its_updates(
    name: str,
    words: List[str],
    told: Optional[str],
    there: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(command, "reproduce", lambda *unused: 0)
    out = tmp_path / "out"
    status = main([name, *words, "--gpus", "0", "--out", str(out)])
    error = capsys.readouterr().err
    assert (status, error) == (0, "") if told is None else (status == 1 and f"{name}, with options" in error)
    assert (told or "") in error and not out.exists()


@pytest.mark.parametrize("updates", [1, 3, 5])
def test_every_tiny_form_can_be_shorter(updates: int) -> None:
    choices = Choices(Path(), smoke=True, max_update=updates)
    for name, recipe in catalogue().items():
        schedule = plan(recipe, 1, Path(), "", choices).config["lr_scheduler"]
        total = schedule.get("total_num_update") or updates
        assert schedule.get("warmup_updates", 0) < total, name


@pytest.mark.parametrize("option", ["--out", "--results-dir"])
@pytest.mark.parametrize("problem", ["a file", "closed"])
def test_folders_of_results(
    option: str, problem: str, there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "file"
    place.write_text("x")
    if problem == "closed":
        place = tmp_path / "closed"
        place.mkdir()
        monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != place)
    chosen = place / "below"
    choices = Choices(chosen) if option == "--out" else Choices(tmp_path, results=chosen)
    assert f"{option} {chosen} " in refusal(TEXT, choices)


@pytest.mark.parametrize("content", ['{"a": ', "[1]", '{"a": 1}'])
@pytest.mark.parametrize("folder", ["results", "cells", "elsewhere"])
def test_results_that_are_damaged_or_of_others(folder: str, content: str, there: None, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    (tmp_path / folder / "a.json").write_text(content)
    choices = Choices(tmp_path, results=tmp_path / folder if folder == "elsewhere" else None)
    assert f"{tmp_path / folder / 'a.json'}: " in refusal(TEXT, choices)


@pytest.mark.parametrize(
    "words, told",
    [
        (["figure4", "--output", "x.docx"], "--output x.docx: the name of an image ends with one of"),
        (["figure4", "--output", "x"], "--output x: the name of an image ends with one of"),
        (["figure4", "--output", "/dev/null/x.png"], "--output /dev/null/x.png cannot be written: /dev/null is not"),
        (["figure4", "--output", "."], "--output .: the name of an image"),
        (["mega/figure6", "--path", "x.pt", "--output", "x.docx"], "--output x.docx: the name of an image"),
        (["comparison/bytes/mega", "--set", "evaluate.contexts=[]"], "--set evaluate.contexts=[]: comparison/bytes"),
        (
            ["comparison/bytes/mega", "--set", "evaluate.contexts=[{segments: []}]"],
            "=[{segments: []}]: comparison/bytes",
        ),
        (["comparison/bytes/mega", "--set", "optimization.lr=[ ]"], "--set optimization.lr=[ ]: comparison/bytes"),
    ],
    ids=lambda value: "" if isinstance(value, str) else " ".join(value),
)
def test_options_without_effect_or_image(
    words: List[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--smoke", "--out", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", [TRANSLATION, TEXT])
def test_a_full_disk_before_the_data_are_made(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = catalogue()[name]
    need = storage.bytes_of_run(recipe, recipe.config)
    storage.check_disk_for_one_run([recipe], Choices(tmp_path), lambda folder: need)
    storage.check_disk_for_one_run([recipe], Choices(tmp_path, smoke=True), lambda folder: 0)
    with pytest.raises(RecipeError, match="--out"):
        storage.check_disk_for_one_run([recipe], Choices(tmp_path), lambda folder: need - 1)
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda folder: SimpleNamespace(free=1000))
    assert main([name, "--gpus", "0", "--out", str(tmp_path / "out")]) == 1
    assert not (tmp_path / "out").exists()
