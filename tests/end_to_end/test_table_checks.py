"""The runner checks data, dependencies and settings of all recipes before the first training starts."""

import shutil
import sys
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
    """Run the command, which must fail; returns what it said."""

    def run(*words: object) -> str:
        where = ["--out", tmp_path / "out", "--gpus", 0, "--workers", 1]
        assert main([str(word) for word in (*words[:1], *where, *words[1:])]) == 1
        return capsys.readouterr().err

    return run


def test_data_of_all_tasks_come_first(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    """Table 2 with its defaults says at once that Retrieval's data are not there, before ListOps is generated."""
    said = refused("mega/table2", "--data", tmp_path / "data")
    assert "the data of task retrieval cannot be fetched alone" in said and "--where task=LIST" in said
    assert f"fairseq-mega-prepare aan --tsv-dir DIR --out {tmp_path}/data/retrieval" in said
    assert not trained and not (tmp_path / "data").exists()


def test_incomplete_data_come_first(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    """A test split that is missing is found before the training of another task."""
    for name in ("image", "pathfinder"):
        lra_data.write_images(tmp_path / "data" / name, pixels=1024)
    (tmp_path / "data" / "pathfinder" / "input" / "test.src").unlink()
    options = ["mega/table2", "--data", tmp_path / "data", "--where", "task=image,pathfinder", "--seeds", 1]
    said = refused(*options)
    assert "the data of pathfinder32 in" in said and "input/test.src is missing" in said
    assert not trained
    shutil.copy(tmp_path / "data" / "pathfinder" / "input" / "valid.src", tmp_path / "data/pathfinder/input/test.src")
    said = refused(*options, "--no-speed")
    assert "no result of" not in said  # which the failures explain
    assert said.count(TRAINED) == 8 and "8 of 8 runs failed: image." in said  # one does not stop the next
    assert f"{tmp_path}/data/image" in trained[0]


def test_other_settings_are_another_folder(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    """Seed, rate, batch norm's examples, options and data tell runs apart; the number of GPUs or processes does not."""
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


@pytest.mark.parametrize("figure", ["figure4", "figure5", "figure6"])
def test_plots_are_possible(
    trained: List[List[str]], tmp_path: Path, figure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without matplotlib a figure says so before its models are trained."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(SystemExit, match="requires matplotlib"):
        main([f"mega/{figure}", "--smoke", "--out", str(tmp_path / "out")])
    assert not trained and not (tmp_path / "out" / "runs").exists()


@pytest.mark.slow
def test_table5_takes_the_data_from_where_they_are_made(trained: List[List[str]], tmp_path: Path) -> None:
    """Data are found in a checkout whose path has a space; enwik8 that cannot be made fails before WikiText."""
    checkout = tmp_path / "a b"
    for name in ("wikitext103", "enwik8"):
        made = ["--smoke", "--workers", "1", "--out", str(tmp_path / "made"), "--data-dir", str(checkout / "outputs")]
        assert main([f"mega/table5/{name}", *made]) == 1
    bands = [
        word for kind in ("softmax", "input") for word in ("--set", f"model.adaptive_{kind}_cutoff=5,10")
    ]  # few words
    for name, data, more in (("wikitext103", "wikitext-103", bands), ("enwik8", "enwik8", [])):
        (checkout / "outputs" / data / "SOURCE.json").unlink()  # without it they are somebody's own
        assert main([f"mega/table5/{name}", "--root", str(checkout), "--gpus", "0", "--out", str(tmp_path), *more]) == 1
        assert f"{checkout}/outputs/{data}/data-bin" in trained[-1]


def test_table5_looks_at_both_tasks_first(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "enwik8").write_text("")
    assert "enwik8 cannot be made" in refused("mega/table5", "--data-dir", tmp_path / "data", "--seeds", 2)
    assert not trained and not (tmp_path / "data" / "wikitext-103").exists()


def test_table7_needs_its_archives(refused: Any, trained: List[List[str]], tmp_path: Path) -> None:
    said = refused("mega/table7", "--no-download", "--data", tmp_path / "work", "--seeds", "1,3")
    assert "europarl" in said and not trained and not (tmp_path / "work").exists()
