"""The runner checks data, dependencies and settings of all recipes before the first training starts."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.reproduce import runner
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.runs.commands import StageError
from tests.support import in_process as running
from tests.support import lra_data

TRAINED = "the stand-in trains nothing"


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> List[List[str]]:
    """The command lines of the trainings that were started; each of them fails at once."""
    started: List[List[str]] = []

    def execute(words: Any, *others: Any, **more: Any) -> None:
        if "train" in words:
            started.append(list(words))
            raise StageError(TRAINED)
        running.execute(words, *others, **more)

    for function in (runner.prepare, runner.perform_all):
        defaults = tuple(execute if value is runner.execute else value for value in function.__defaults__ or ())
        monkeypatch.setattr(function, "__defaults__", defaults)
    return started


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Any:
    """Job the command, which must fail; returns what it said."""

    def run(*words: object) -> str:
        where = ["--out", tmp_path / "out", "--gpus", 0, "--workers", 1]
        assert main([str(word) for word in (*words[:1], *where, *words[1:])]) == 1
        return capsys.readouterr().err

    return run


def test_data_of_all_tasks_come_first(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    """Table 2 with its defaults says at once that Retrieval's data are not there, before ListOps is generated."""
    said = refused("mega/table2", "--data", tmp_path / "data")
    assert "retrieval" in said and "--tsv-dir" in said
    assert not trained and not (tmp_path / "data").exists()


def test_other_settings_are_another_folder(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    """Seed, learning rate, batch norm's examples, options and data distinguish runs; the number of GPUs does not."""
    data = lra_data.write_images(tmp_path / "image", pixels=1024)
    start = ["mega/table2/image/mega", "--data", data, "--seeds", 1]
    folders = []
    for more in (
        [],
        ["--workers", 2],
        ["--per-step", 25],
        ["--max-update", 900],
        ["--bf16"],
        ["--", "--sentence-avg"],
    ):
        refused(*start, *more)
        folders.append(trained[-1][trained[-1].index("--save-dir") + 1])
    label = data / "label" / "train.label"
    label.write_text(label.read_text()[::-1].lstrip("\n") + "\n")
    refused(*start)
    folders.append(trained[-1][trained[-1].index("--save-dir") + 1])
    assert folders[0] == folders[1] and len(set(folders)) == 6
    assert all("/image.mega.laplace.n16.full.seed1." in folder for folder in folders)
