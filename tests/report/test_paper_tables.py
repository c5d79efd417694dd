"""The papers' tables: results that do not belong together, and forms of a table."""

from pathlib import Path
from typing import Any, Dict, List, Tuple

import pytest

from fairseq_mega.lab.evaluate.lra_runs import chance_of, stuck
from fairseq_mega.lab.report.alike import check_alike
from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.runs.results import ResultError, make_result
from fairseq_mega.lab.runs.text_tables import FORMATS, Table
from tests.report.synthetic import classifier, put

MIXED: Dict[str, Tuple[Dict[str, Any], Dict[str, Any], str]] = {  # settings of two results of a cell, what is said
    "the same seed twice": ({}, {"seed": 1}, "of seed 1"),
    "another training": ({"training_digest": "a"}, {"training_digest": "b"}, "training_digest: a and b"),
    "another evaluation": ({"evaluation": "table2-a"}, {"evaluation": "table2-b"}, "evaluation: table2-a and table2-b"),
    "other data": ({"data_digest": "a"}, {"data_digest": "b"}, "data_digest: a and b"),
    "another rate": ({"lr": 1e-05}, {"lr": 2e-05}, "lr: 1e-05 and 2e-05"),
    "another precision": ({"conditions": "0"}, {"conditions": "1", "precision": "bf16"}, "precision: none and bf16"),
    "changes": ({"conditions": "0"}, {"conditions": "1", "set": {"optimization.lr": "0.1"}}, "optimization.lr"),
    "the same weights twice": ({"weights": {"sha256": "ab"}}, {"seed": 2, "weights": {"sha256": "ab"}}, "SHA-256 ab"),
    "the evaluation of another table": ({"evaluation": "table2-a"}, {"evaluation": "figure4-a"}, ""),
    "an earlier version's": ({"conditions": "0", "training_digest": "a", "data_digest": "b"}, {}, ""),
    "another cell": ({"conditions": "0"}, {"conditions": "1", "chunk": 128}, ""),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_mean_is_of_one_kind(name: str, tmp_path: Path, capsys: Any) -> None:
    """Refuse a mean of results that fairseq-mega-reproduce keeps apart, and name both files."""
    *both, said = MIXED[name]
    for number, more in enumerate(both, start=1):
        classifier(tmp_path, "mega/table2/text/mega", 60.0, **{"seed": number, **more})
    assert main(["table2", str(tmp_path)]) == bool(said)
    error = capsys.readouterr().err
    assert said in error and bool(error) == bool(said)
    assert not said or ("000.json" in error and "001.json" in error and error.count("\n") == 1)


def printed(report: str, folder: Path, capsys: Any) -> List[str]:
    assert main([report, str(folder)]) == 0
    return capsys.readouterr().out.splitlines()


def test_chance_is_judged_by_the_validation_set(tmp_path: Path, capsys: Any) -> None:
    classifier(tmp_path, "mega/table2/listops/mega", 15.0, best=40.0)
    lines = printed("table2", tmp_path, capsys)
    assert any(line.split()[:4] == ["runs", "above", "chance", "1/1"] for line in lines)
    classifier(tmp_path, "mega/table2/listops/mega", 40.0, seed=2, best=18.0)
    assert any(line.split()[:4] == ["runs", "above", "chance", "1/2"] for line in printed("table2", tmp_path, capsys))


def test_chance_is_the_best_guess_without_an_input() -> None:
    for task, chance in (("listops", 17.0), ("text", 50.0), ("image", 10.0)):
        runs = [
            {"scores": {"best_valid_accuracy": best}, "settings": {"task": task}} for best in (chance + 3, chance + 5)
        ]
        assert chance_of(task) == chance and [stuck(run) for run in runs] == [True, False]


@pytest.mark.parametrize("changed", [{}, {"examples": 49_999}, {"train_examples": 1_281_166}, {"updates": 4}])
def test_images_that_cannot_be_compared_have_a_star(changed: Dict[str, int], tmp_path: Path, capsys: Any) -> None:
    about: Dict[str, Any] = {"examples": 50_000, "train_examples": 1_281_167, "updates": 5, **changed}
    about.update(model="deit_b", checkpoint="last", published_updates=5)
    put(tmp_path, "imagenet", "mega/table6/imagenet/deit_b", {"top1_accuracy": 80.0}, **about)
    text = "\n".join(printed("table6", tmp_path, capsys))
    assert ("80.00*" in text) == ("* fewer updates" in text) == bool(changed)


def test_forms_of_a_table() -> None:
    table = Table(["name", "a|b"], [["one, two", "1"], ["three", ""]])
    assert FORMATS["markdown"](table) == "| name | a\\|b |\n|---|---|\n| one, two | 1 |\n| three |  |"
    assert FORMATS["terminal"](table) == "name      a|b\none, two    1\nthree"


@pytest.mark.parametrize("name", ["conditions", "data_digest", "training_digest", "evaluation", "lr"])
def test_results_of_other_settings_are_of_no_cell_together(name: str) -> None:
    settings = {"recipe": "mega/table2/text/mega", "task": "text", "model": "mega"}
    results = [
        make_result("lra", "x", {"test_accuracy": 1.0}, 1, "c", seed, {**settings, name: value})
        for seed, value in ((1, "a"), (2, "a"), (3, "b"))
    ]
    check_alike({Path("1"): results[0], Path("2"): results[1]})
    with pytest.raises(ResultError, match="different settings"):
        check_alike({Path("1"): results[0], Path("3"): results[2]})
