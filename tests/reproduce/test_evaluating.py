"""The evaluation of translations: of the checkpoint that is there, and of the epochs that there are."""

import os
from pathlib import Path
from typing import Any, List, Optional

import pytest
import torch

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.evaluating import generated, last_average, remove_older_results, results_of, translate
from fairseq_mega.lab.reproduce.runs import Run, plan


@pytest.fixture()
def run(tmp_path: Path) -> Run:
    recipe = catalogue()["mega/table7/en-de/mega_softmax"]
    found = plan(recipe, 1, tmp_path / "data-bin", "0", Choices(tmp_path, smoke=True))
    (found.folder / "checkpoints").mkdir(parents=True)
    (tmp_path / f"{recipe.evaluate['test']}.en").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"{recipe.evaluate['test']}.en").write_text("a\n")
    return found


def epoch(run: Run, number: int, second: int) -> Path:
    """Write the checkpoint of an epoch at a time."""
    path = run.folder / "checkpoints" / f"checkpoint{number}.pt"
    torch.save({"model": {"weight": torch.tensor([float(number)])}}, path)
    os.utime(path, (second, second))
    return path


def test_translations_of_an_earlier_checkpoint_are_made_again(run: Run) -> None:
    """--keep-schedule continues a training in its folder; an interrupted evaluation translates once."""
    done: List[Path] = []

    def execute(words: Any, log: Path, variables: Any, progress: Any = None, output: Optional[Path] = None) -> None:
        assert output is not None
        output.write_text("H-0\t-1\ta\n")
        done.append(output)

    path = epoch(run, 1, 1000)
    for _ in range(2):
        translate(run, "best", path, execute, {})
    assert done == [generated(run, "best")]
    epoch(run, 1, 1 << 40)
    translate(run, "best", path, execute, {})
    assert len(done) == 2


def test_results_of_an_earlier_checkpoint_are_measured_again(run: Run) -> None:
    path, results = epoch(run, 1, 1000), results_of(run)
    results.mkdir(parents=True)
    for name, second in (("earlier", 999), ("later", 1000)):
        (results / f"{name}.json").touch()
        os.utime(results / f"{name}.json", (second, second))
    remove_older_results(run, path)
    assert [file.stem for file in results.iterdir()] == ["later"]


def test_the_average_of_the_last_epochs(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    """A training with fewer epochs has its best checkpoint scored alone; later epochs make another average."""
    assert run.recipe.evaluate["average"] == 2
    epoch(run, 1, 1000)
    assert last_average(run) == {}
    assert "checkpoints of 1 epochs: the average of the last 2 is not scored" in capsys.readouterr().err
    epoch(run, 2, 1001)
    for last, mean in ((2, 1.5), (3, 2.5)):
        path = last_average(run)["average"]
        assert torch.load(path, weights_only=False)["model"]["weight"].item() == mean
        written = path.stat().st_mtime_ns
        assert last_average(run) == {"average": path} and path.stat().st_mtime_ns == written
        os.utime(path, (2000, 2000))
        epoch(run, last + 1, 3000)
