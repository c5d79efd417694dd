"""The quick start trains as its recipes say."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.quickstart import language_model, translation
from fairseq_mega.lab.quickstart.options import LM, TRANSLATION, parse
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import flag


def started(task: str, folder: Path, monkeypatch: pytest.MonkeyPatch, *more: str) -> List[str]:
    """The command of a training that is planned in a folder; it is not run, and fails therefore."""
    options = parse(["--task", task, "--work-dir", str(folder), *more])
    own = translation.Translation(options, "command") if task == TRANSLATION else language_model.LanguageModel(options)
    commands: List[List[str]] = []

    def run(name: str, command: List[Any], *others: Any) -> None:
        commands.append([str(word) for word in command])

    monkeypatch.setattr(own.work, "run", run)
    own.device, own.precision = ["--cpu"], "fp32"
    (own.folder / "minutes").write_text("15\n" if task == TRANSLATION else "5\n")
    with pytest.raises(Exception, match="ended without a checkpoint"):
        own.train()
    return commands[0]


@pytest.mark.parametrize("task", [TRANSLATION, LM])
def test_the_training_is_the_recipe(task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every option of it, those of the clock too; the folders, the machine and the seed apart from it."""
    recipe = catalogue()[f"quickstart/{task}"]
    command = " ".join(started(task, tmp_path, monkeypatch))
    folders = {"data": tmp_path / "data-bin", "save_dir": tmp_path / "checkpoints", "user_dir": None}
    for options in recipe.config.values():
        for option, value in options.items():
            if option not in ("_name", "data", "max_update", "distributed_world_size"):
                words = " ".join(flag(option, folders.get(option, value)))
                assert words.replace("0.08333333333333333", "0.083333") in command, option
    assert f"{tmp_path / 'data-bin'} " in command and f"--arch {recipe.preset} " in command
    assert "--lr-scheduler timed_decay" in command and "--max-update" not in command


def test_the_tiny_form_is_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = started(LM, tmp_path, monkeypatch, "--smoke")
    assert command[command.index("--decoder-embed-dim") + 1] == "32"
    with pytest.raises(Exception, match="was begun with other settings"):
        started(LM, tmp_path, monkeypatch)
