"""The tables on recall and state tracking: which runs count, and where their scores stand."""

from pathlib import Path
from typing import Any, Dict, List, Tuple

from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.recall import TABLES, panels, trained
from fairseq_mega.lab.runs.results import make_result, read_results, write_result


def put(folder: Path, model: str, runs: List[Tuple[int, float, float]], rate: float, name: str = "") -> None:
    """Write a cell with runs of a seed, a rate and an accuracy."""
    found: List[Dict[str, Any]] = []
    for seed, lr, accuracy in runs:
        scores = {
            "test_accuracy": accuracy,
            "best_valid_accuracy": accuracy,
            "borders-0_accuracy": accuracy + 10,
            "borders-1_accuracy": accuracy - 10,
        }
        found.append({"seed": seed, "lr": lr, "scores": scores, "training_hours": 0.01})
    about = {"recipe": f"comparison/recall/{model}", "task": "recall", "model": model, "parameters": 1234, "lr": rate}
    result = make_result("cell", model, {"test_accuracy": 1.0}, 10, "c", None, about, runs=found)
    write_result(folder / f"{name or model}.json", result)


def test_runs_of_the_chosen_rate(tmp_path: Path, capsys: Any) -> None:
    """The rate of a cell with three rates is that of the other cell, with the same and more seeds."""
    put(tmp_path, "mega", [(1, 0.001, 50.0), (1, 0.01, 70.0)], 0.01)
    put(tmp_path, "mega", [(1, 0.01, 70.0), (2, 0.01, 60.0)], 0.01, "seeds")
    put(tmp_path, "mega", [(1, 0.003, 60.0), (2, 0.003, 50.0)], 0.003, "other")
    put(tmp_path, "llama", [(1, 0.001, 40.0)], 0.001)
    llama, mega = trained(read_results(tmp_path, "cell"))
    assert (llama.name, mega.rate, mega.rates) == ("Llama-style", 0.01, [0.001, 0.003, 0.01])
    assert mega.scores("test_accuracy") == [70.0, 60.0]
    (panel,) = panels([llama, mega], ["borders", "pairs"])
    assert [line.points for line in panel.lines] == [[(0, 50.0), (1, 30.0)], [(0, 75.0), (1, 55.0)]]
    assert panel.lines[1].band == [(0, 70.0, 80.0), (1, 50.0, 60.0)]
    table = TABLES["recall"](tmp_path, [".", "recall"])
    assert [row[3] for row in table.rows] == ["0.001 of 0.001", "0.01 of 0.001, 0.003, 0.01"]
    assert [row[-1] for row in table.rows] == ["40.00", "65.00 ±7.07"]
    assert TABLES["recall-along"](tmp_path, [".", "recall", "borders"]).rows[1][1:] == ["75.0 ±7.1", "55.0 ±7.1"]
    assert main(["recall", str(tmp_path)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("comparison")]
    assert [row[1:3] for row in rows[:3]] == [["1", "llama"], ["1", "mega"], ["1", "mega"]] and len(rows) == 6 + 4
