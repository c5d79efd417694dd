"""The evaluation of translations: of the checkpoint that is there, and of the epochs that there are."""

import os
from pathlib import Path
from typing import Any, List, Optional

import pytest
import torch

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce.evaluating import generated, last_average, translate
from fairseq_mega.lab.reproduce.jobs import Job, plan
from fairseq_mega.lab.reproduce.settings import Choices


@pytest.fixture()
def run(tmp_path: Path) -> Job:
    recipe = catalogue()["mega/table7/en-de/mega_softmax"]
    found = plan(recipe, 1, tmp_path / "data-bin", "0", Choices(tmp_path, smoke=True))
    (found.folder / "checkpoints").mkdir(parents=True)
    (tmp_path / f"{recipe.evaluate['test']}.en").parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / f"{recipe.evaluate['test']}.en").write_text("a\n")
    return found


def epoch(run: Job, number: int, second: int) -> Path:
    """Write the checkpoint of an epoch at a time, another one at another time."""
    path = run.folder / "checkpoints" / f"checkpoint{number}.pt"
    torch.save({"model": {"weight": torch.tensor([float(number)])}, "second": second}, path)
    os.utime(path, (second, second))
    return path


TIMES = pytest.mark.parametrize("later", [1, 1 << 40], ids=["by a clock that went back", "later"])


@TIMES
def test_translations_of_another_checkpoint_are_made_again(later: int, run: Job) -> None:
    """A training may be repeated in its folder; an interrupted evaluation translates once."""
    done: List[Path] = []

    def execute(words: Any, log: Path, variables: Any, progress: Any = None, output: Optional[Path] = None) -> None:
        assert output is not None
        output.write_text("H-0\t-1\ta\n")
        done.append(output)

    path = epoch(run, 1, 1000)
    for second in (1, 1 << 40):
        translate(run, "best", path, execute, {})
        os.utime(path, (second, second))  # copied, or touched
    translate(run, "best", path, execute, {})
    assert done == [generated(run, "best")]
    translate(run, "best", epoch(run, 1, later), execute, {})
    assert len(done) == 2


@TIMES
def test_the_average_of_the_last_epochs(later: int, run: Job, capsys: pytest.CaptureFixture[str]) -> None:
    """A training with fewer epochs has its best checkpoint scored alone; other epochs make another average."""
    assert run.recipe.evaluate["average"] == 2
    epoch(run, 1, 1000)
    assert last_average(run) == {}
    assert "the average of the last 2" in capsys.readouterr().err
    epoch(run, 2, 1001)
    for last, mean in ((2, 1.5), (3, 2.5)):
        path = last_average(run)["average"]
        assert torch.load(path, weights_only=False)["model"]["weight"].item() == mean
        written = path.stat().st_mtime_ns
        assert last_average(run) == {"average": path} and path.stat().st_mtime_ns == written
        os.utime(path, (2000, 2000))
        epoch(run, last + 1, later)
