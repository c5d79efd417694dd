"""--list: a golden of all recipes, and the operations of their models that it reads."""

from pathlib import Path

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce import counts
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.listing import duration, row
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support.jobs import TEXT, run_of

GOLDEN = Path(__file__).parent.parent / "goldens" / "list.txt"  # what the first command of the first test prints


def test_the_list_of_a_bare_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Recipes for a first try come first, and lines have 100 columns."""
    words = ["--list", "--gpus", "0", "--workers", "2", "--root", str(tmp_path), "--out", str(tmp_path)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed == GOLDEN.read_text(encoding="utf-8")
    assert max(map(len, printed.splitlines())) <= 100
    assert {*catalogue()} <= {line.split()[0] for line in printed.splitlines() if line}
    assert "megalodon/table3/mt-bench" in printed


def test_the_counts_are_those_of_the_models() -> None:
    """``counts.write()`` writes them again."""
    assert counts.FILE.read_text(encoding="utf-8") == counts.text()


def test_the_time_that_is_left(tmp_path: Path) -> None:
    """It follows from the operations of the seeds that are not done, and from the clock where that ends a training."""
    run = run_of(TEXT, tmp_path, workers=2)
    run.folder.mkdir(parents=True)
    (run.folder / "train.log").touch()
    recipe, gpu = run.recipe, Choices(tmp_path, gpus=1)
    work = 25000 * counts.operations_of(recipe)
    begun = row(recipe, [run], run.choices)
    assert begun.cells[1:4] == ["0 of 1 seeds", "90.43", "-"] and begun.seconds == work / 50e9
    assert duration(recipe, 25000, gpu) == work / 40e12
    assert duration(catalogue()["quickstart/lm"], 0, gpu) == 300
