"""The runner from the data to the tables, in the tiny form: what is done is kept, what is other is done anew."""

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.runner import FAILED
from fairseq_mega.lab.runs import commands
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.results import read_result, read_results
from tests.support import in_process as running
from tests.support.in_process import in_process  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("in_process")]


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of runs that tests share, so that data and trainings are made once."""
    return tmp_path_factory.mktemp("reproduce")


def reproduce(out: Path, *words: object, status: int = 0) -> None:
    assert main([*map(str, words), "--smoke", "--workers", "1", "--out", str(out)]) == status


def found(out: Path, benchmark: str) -> List[Dict[str, Any]]:
    return read_results(out / "results", benchmark)


def test_classifiers(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A number of two tables is trained once; a failed seed is named, and the others go on."""
    reproduce(out, "mega/table2/text/mega", "mega/table3/text/softmax", "--seeds", "7")
    printed = capsys.readouterr()
    assert printed.err.count("train: done before, skipped") == 1 and printed.err.count(".train: begins") == 1
    assert "Table 2" in printed.out and "Table 3" in printed.out and "SMOKE RUN" in printed.out
    results = found(out, "lra-smoke")
    assert {result["settings"]["recipe"] for result in results} == {"mega/table2/text/mega", "mega/table3/text/softmax"}
    assert {(result["seed"], result["examples"], result["settings"]["data"]) for result in results} == {
        (7, 16, "invented")
    }
    assert all(result["settings"]["precision"] == "fp32" and result["training_hours"] >= 0 for result in results)
    # The same again: nothing is done, nothing changes.
    reproduce(out, "mega/table2/text/mega", "mega/table3/text/softmax", "--seeds", "7")
    assert "begins" not in capsys.readouterr().err and found(out, "lra-smoke") == results


def test_other_settings_are_other_runs(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Another number of updates or learning rate does not take the result of the first; no table mixes them."""
    reproduce(out, "mega/table2/text/mega", "--seeds", "7")
    first = capsys.readouterr()
    assert "begins" not in first.err
    for more in (["--max-update", "3"], ["--set", "optimization.lr=0.1"], ["--", "--sentence-avg"]):
        words = ["mega/table2/text/mega", "--seeds", "7", "--smoke", "--workers", "1", "--out", str(out)]
        assert main([*words, *more]) == 0
        printed = capsys.readouterr()
        assert printed.err.count(".train: begins") == 1
        changes = "" if "--max-update" in more else f", with {' '.join(more)}"
        rows = [line for line in printed.out.splitlines() if line.startswith(f"mega/table2/text/mega{changes} ")]
        assert rows and {rows[0].removeprefix(f"mega/table2/text/mega{changes}").split()[0]} == {"7"}
        assert ("3" if "3" in more else "6") in rows[0].split()
    assert len(list((out / "runs").iterdir())) >= 3


def test_short_trainings_choose_the_learning_rate(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All seeds are trained at it alone, and the short trainings are not scored on the test set."""
    words = ["comparison/text_budget/mega_chunk", "--set", "optimization.lr=[0.01,0.002]", "--seeds", "7,8"]
    reproduce(out, *words, "--max-update", "10")
    printed = capsys.readouterr()
    assert printed.err.count(".train: begins") == 4 and printed.err.count(".evaluate: begins") == 2
    (path,) = (out / "cells").glob("comparison.text_budget.*")
    cell = read_result(path)
    choice, rate = cell["settings"]["rate_choice"], cell["settings"]["lr"]
    accuracies = {float(name): accuracy for name, accuracy in choice["accuracies"].items()}
    assert choice["updates"] == 2 and set(accuracies) == {0.01, 0.002}
    assert accuracies[rate] == max(accuracies.values()) and choice["core_hours"] > 0
    assert {(run["seed"], run["lr"]) for run in cell["runs"]} == {(7, rate), (8, rate)}
    assert all(run["core_hours"] > 0 for run in cell["runs"])
    tried = f"0.002: {accuracies[0.002]:.2f}, 0.01: {accuracies[0.01]:.2f}"
    (row,) = (line for line in printed.out.splitlines() if tried in line)
    before, after = row.split(tried)
    assert before.split()[-2:] == ["10", "80"] and after.split()[:3] == [f"{rate:g}", "7,", "8"]
    reproduce(out, *words, "--max-update", "10")
    assert "begins" not in capsys.readouterr().err


def test_a_failed_seed_is_named(out: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    burning = ["yes"]

    def failing(words: Any, *others: Any, **more: Any) -> None:
        if burning and "train" in words and words[words.index("--seed") + 1] == "8":
            raise StageError("the machine is on fire")
        running.run_command(words, *others, **more)

    monkeypatch.setattr(commands, "run_command", failing)
    reproduce(out, "mega/table2/text/mega", "--seeds", "8,7", status=1)
    printed = capsys.readouterr()
    assert "the machine is on fire" in printed.err
    assert "text.mega.softmax.n16.full.seed8." in printed.err
    assert "mega/table2/text/mega, seed 7" in printed.out  # the table of the seed that went well
    (word,) = (out / "runs").glob(f"*/{FAILED}")
    assert json.loads(word.read_text())["error"] == "the machine is on fire" and ".seed8." in word.parent.name
    burning.clear()
    reproduce(out, "mega/table2/text/mega", "--seeds", "8")
    assert not word.exists()


def test_translation(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["mega/table7", "--where", "direction=de-en", "--where", "attention=laplace", "--seeds", "5"]
    reproduce(out, *chosen)
    printed = capsys.readouterr()
    assert "MEGA laplace, paper" in printed.out and "SMOKE RUN on invented data" in printed.out
    results = found(out, "wmt16-newstest2014-smoke")
    assert {result["settings"]["checkpoint"] for result in results} == {"best", "average"}
    for result in results:
        assert (result["examples"], result["seed"]) == (45, 5)
        assert set(result["scores"]) == {"sacrebleu", "tokenized_bleu"}
        assert (result["settings"]["direction"], result["settings"]["attention"]) == ("de-en", "laplace")
    # Sentences that are missing from a translation end the run.
    (folder,) = (out / "runs").glob("de-en.*")
    (output,) = folder.glob("generate.best.*.txt")
    lines = output.read_text().splitlines()
    assert sum(line.startswith("H-") for line in lines) == 45
    output.write_text("\n".join(line for line in lines if not line.startswith(("H-44\t", "D-44\t"))))
    (marker,) = (folder / ".done").glob("evaluate.*")
    marker.unlink()
    reproduce(out, *chosen, status=1)
    said = capsys.readouterr().err
    assert "44 H- lines found, --expect is 45" in said and ".train: done before" in said


def test_the_list_knows_what_was_done(out: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reproduce(out, "table2/text", "--list", "--seeds", "7")
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line}
    assert " done " in lines["mega/table2/text/mega"] and "90.43" in lines["mega/table2/text/mega"]
    assert "~" not in lines["mega/table2/text/mega"] and "(1)" in lines["mega/table2/text/mega"]
    assert "not begun" in lines["mega/table2/text/mega_chunk"]
    assert main(["--list", "table2/image/s4d", "--gpus", "0", "table2/text/mega"]) == 0
    named = [line.split()[0] for line in capsys.readouterr().out.splitlines() if line.startswith("mega/")]
    assert sorted(named) == ["mega/table2/image/s4d", "mega/table2/text/mega"]
