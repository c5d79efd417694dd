"""States of the recipes: the results that count, means over seeds, and benchmarks that were not run."""

from pathlib import Path
from typing import Any, Dict, Tuple

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.report import command
from fairseq_mega.lab.report.recipe_states import State, above_chance_of, benchmark_table, ours_of, states
from fairseq_mega.lab.runs.results import ResultError, make_result, write_result

NAME = "mega/table2/text/mega"


def store(
    path: Path, seed: int, accuracy: float, benchmark: str = "lra", date: str = "2026-01-02T03:04:05+00:00", **more: Any
) -> None:
    settings: Dict[str, Any] = {"recipe": NAME, "data": "released", "task": "text", **more}
    settings = {"updates": 10, "published_updates": 10, "trained_on": ["H200"], **settings}
    scores = {"test_accuracy": accuracy, "best_valid_accuracy": accuracy}
    result = make_result(benchmark, "run", scores, 10, "command", seed, settings)
    result.update(git_revision="0123456789", date=date)
    write_result(path, result)


def state_of(folder: Path) -> State:
    """Return the state of the one recipe with a result."""
    (state,) = [state for state in states([folder]) if state.results]
    return state


def test_results_that_count(tmp_path: Path) -> None:
    """Toy data, changed and unknown recipes and the runner's copies do not."""
    short: Dict[str, Any] = {"updates": 5}  # than the paper's
    store(tmp_path / "results" / "a.json", 1, 90.0, **short)
    store(tmp_path / "results" / "deep" / "b.json", 2, 92.0, **short)
    store(tmp_path / "results" / "c.json", 3, 50.0, **short)  # at chance
    store(tmp_path / "results" / "whole.json", 4, 99.0)
    store(tmp_path / "runs" / "run" / "results" / "a.json", 1, 90.0)
    store(tmp_path / "results" / "smoke.json", 5, 10.0, benchmark="lra-smoke", **short)
    store(tmp_path / "results" / "other.json", 6, 10.0, recipe="of somebody else", **short)
    store(tmp_path / "results" / "set.json", 7, 10.0, set={"optimization.lr": "0.1"}, **short)
    store(tmp_path / "results" / "extra.json", 8, 10.0, extra="--sentence-avg", **short)
    state = state_of(tmp_path)
    assert state.recipe.name == NAME and {result["seed"] for result in state.results} == {1, 2, 3}
    assert (ours_of(state), above_chance_of([state])) == ("77.33 ±23.69*", "2 of 3")


def test_a_row_for_every_benchmark(tmp_path: Path) -> None:
    for seed in catalogue()[NAME].seeds:
        store(tmp_path / f"{seed}.json", seed, 90.0)
    table = benchmark_table(states([tmp_path]))
    rows = {row[0]: row[1:] for row in table.rows}
    count = sum(name.startswith("mega/table2/text/") for name in catalogue())
    recipes, paper, ours, left, state = rows["Table 2, Text"]
    assert recipes == f"`mega/table2/text`: {count}" and ours == "MEGA 90.00 ±0.00" and left == "5 of 5"
    assert "MEGA 90.43; MEGA-chunk 90.19; Transformer 65.21" in paper and state == f"1 of {count} begun, 1 done"
    assert rows["Figure 4, Image"][1:] == ["plot", "-", "-", "not run yet"]
    assert rows["Quick start, language model of bytes"][1:] == ["-", "-", "-", "see its page"]
    assert len(rows) == len(table.rows) == len({name.rpartition("/")[0] for name in catalogue()})


def test_a_cell_holds_the_results_of_its_seeds(tmp_path: Path) -> None:
    """One file for a recipe: the runs at the learning rate that was chosen count."""
    rates = [(0.1, 1, 90.0), (0.1, 2, 92.0), (0.2, 1, 10.0)]
    runs = [
        {"seed": seed, "lr": rate, "scores": {"test_accuracy": accuracy, "best_valid_accuracy": accuracy}}
        for rate, seed, accuracy in rates
    ]
    settings = {"recipe": NAME, "task": "text", "lr": 0.1, "updates": 5, "data": "generated"}
    scores = {"test_accuracy": 91.0, "deviation": 1.41}
    result = make_result("cell", NAME, scores, 10, "command", settings=settings, runs=runs)
    write_result(tmp_path / "cell.json", {**result, "missing": []})
    store(tmp_path / "one.json", 2, 92.0)  # the same once more
    state = state_of(tmp_path)
    assert [result["seed"] for result in state.results] == [1, 2]
    assert ours_of(state) == "91.00 ±1.41*"


OTHERS: Dict[str, Tuple[Dict[str, Any], Dict[str, Any]]] = {  # settings of one seed, and of two
    "precision": ({}, {"precision": "bf16"}),  # of the time when there was one precision
    "updates": ({"updates": 10}, {"updates": 2}),
    "conditions": ({"conditions": "d22eb078", "updates": 10}, {"conditions": "8a2a1df5", "updates": 2}),
    "no conditions": ({"conditions": "d22eb078"}, {}),
}


@pytest.mark.parametrize("name", OTHERS)
def test_seeds_of_different_settings_are_not_mixed(name: str, tmp_path: Path) -> None:
    """The settings of most seeds count, at first those of more updates or more exact."""
    one, two = OTHERS[name]
    store(tmp_path / "a.json", 1, 80.0, **two)
    store(tmp_path / "b.json", 1, 90.0, **one)
    state = state_of(tmp_path)
    assert name == "no conditions" or ours_of(state) == "90.00"
    assert len(state.results) == 1
    store(tmp_path / "c.json", 2, 82.0, **two)
    state = state_of(tmp_path)
    assert ours_of(state).rstrip("*") == "81.00 ±1.41"


def test_scores_of_several_checkpoints_are_told_apart(tmp_path: Path) -> None:
    for number, (checkpoint, accuracy) in enumerate((("best", 82.0), ("last", 70.0))):
        for seed in (1, 2):
            store(tmp_path / f"{number}.{seed}.json", seed, accuracy + seed, checkpoint=checkpoint)
    state = state_of(tmp_path)
    assert ours_of(state) == "83.50 ±0.71 (checkpoint best), 71.50 ±0.71 (checkpoint last)"


def test_the_newest_of_a_seed_counts(tmp_path: Path) -> None:
    store(tmp_path / "a.json", 1, 80.0, date="2026-01-03")
    store(tmp_path / "b.json", 1, 90.0, date="2026-01-02")
    state = state_of(tmp_path)
    assert ours_of(state) == "80.00"


def test_a_rate_that_was_not_chosen_does_not_count(tmp_path: Path) -> None:
    """A cell determines the learning rate of a recipe with several; without a cell there is no number."""
    recipe = "miniature/listops/mega"
    store(tmp_path / "results" / "lr0.002.json", 1, 14.0, recipe=recipe, task="listops", lr=0.002)
    store(tmp_path / "results" / "lr0.006.json", 1, 11.0, recipe=recipe, task="listops", lr=0.006)
    assert not [state for state in states([tmp_path]) if state.results]
    runs = [
        {"seed": 1, "lr": rate, "scores": {"test_accuracy": accuracy, "best_valid_accuracy": accuracy}}
        for rate, accuracy in ((0.002, 14.0), (0.006, 11.0))
    ]
    settings = {"recipe": recipe, "task": "listops", "lr": 0.002, "updates": 5, "data": "generated"}
    cell = make_result("cell", recipe, {"test_accuracy": 14.0}, 10, "command", settings=settings, runs=runs)
    write_result(tmp_path / "cells" / "a.json", {**cell, "missing": []})
    state = state_of(tmp_path)
    assert ours_of(state) == "14.00*" and above_chance_of([state]) == "0 of 1"


def test_files_of_others_are_passed_over_and_damaged_results_named(tmp_path: Path) -> None:
    store(tmp_path / "a.json", 1, 90.0)
    for name, text in (("package.json", '{"recipe": [1]}'), ("list.json", '["recipe"]')):
        (tmp_path / name).write_text(text)
    assert ours_of(state_of(tmp_path)) == "90.00"
    (tmp_path / "b.json").write_text('{"recipe": ')
    with pytest.raises(ResultError, match="b.json"):
        states([tmp_path])


def test_a_table_of_a_paper_omits_small_models(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more: Dict[str, Any] = {"model": "mega", "chunk": -1, "attention": "softmax", "ema_dim": 16, "parameters": 10}
    store(tmp_path / "a.json", 1, 90.0, **more, lr=0.004, conditions="d22eb078", early_epoch=1)
    store(tmp_path / "b.json", 1, 12.0, **more, lr=0.002, conditions="d22eb078", recipe="miniature/text/mega")
    assert command.main(["table2", str(tmp_path)]) == 0
    output = capsys.readouterr().out
    assert "90.00" in output and "12.00" not in output
    store(tmp_path / "c.json", 2, 80.0, **more, lr=0.002, conditions="d22eb078", early_epoch=1)
    assert command.main(["table2", str(tmp_path)]) == 1
    assert "different settings (lr: 0.004 and 0.002)" in capsys.readouterr().err
