"""Result files from the logs of the Long Range Arena."""

import json
import re
from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.evaluate import lra_results
from fairseq_mega.lab.runs import training_log
from fairseq_mega.lab.runs.results import read_result
from tests.support import lra_data
from tests.support.helpers import captured_output, forget_earlier_runs

STAMP = "2026-01-02 03:04:05 | INFO"
HEAD = f"""{STAMP} | fairseq_cli.train | num. shared model params: 1,386,874 (num. trained: 1,386,874)
{STAMP} | fairseq_mega.tasks.lra_image | valid: 20 images of 1,024 pixels
{STAMP} | fairseq_mega.tasks.lra_image | train: 1,600 images of 1,024 pixels
"""


def valid(epoch: int, updates: int, accuracy: float) -> str:
    found = {"epoch": epoch, "valid_loss": "0.5", "valid_accuracy": str(accuracy), "valid_num_updates": str(updates)}
    return f"{STAMP} | valid | {json.dumps(found)}\n"


def inner(ups: float, **more: Any) -> str:
    return f"{STAMP} | train_inner | {json.dumps({'epoch': 1, 'ups': str(ups), 'num_updates': '1', **more})}\n"


def read(text: str) -> training_log.Training:
    return training_log.read_training(training_log.parse_log(text.splitlines()), "train.log")


def test_hours_of_all_starts() -> None:
    end = json.dumps({"epoch": 1, "train_num_updates": "9", "train_train_wall": "700", "train_wall": "1800"})
    log = HEAD + inner(4, train_wall="9", wall="40") + inner(4, train_wall="9", wall="3600")
    log += HEAD + inner(4, train_wall="9", wall="900") + f"{STAMP} | train | {end}\n" + "| killed {\n" + HEAD
    assert training_log.parse_log(log.splitlines()).hours == 1.5
    log = HEAD + valid(1, 5, 50.0) + inner(4, wall="1800") + valid(2, 10, 60.0) + HEAD + inner(4, wall="900")
    assert [found.hours for found in read(log + valid(3, 15, 70.0)).validations] == [None, 0.5, 0.75]
    assert training_log.parse_log(HEAD.splitlines()).hours is None


def test_core_hours_of_all_starts() -> None:
    starts = [[0.5, 0.75], [], [0.125, 0.25]]
    logs = [HEAD + "".join(f'{{"core_hours": {hours}}}\n{inner(4)}' for hours in start) for start in starts]
    cut_off = '{"core_hours": 9'
    assert training_log.parse_log([*"".join(logs).splitlines(), cut_off]).core_hours == 1.0
    assert training_log.parse_log((HEAD + inner(4)).splitlines()).core_hours is None


def test_log_of_a_training_that_was_interrupted() -> None:
    """Updates after the last checkpoint are trained again; the later numbers count."""
    first = HEAD + inner(0) + inner(4) + valid(1, 100, 60.0) + valid(2, 200, 99.0)
    cut_off = f'{STAMP} | valid | {{"epoch": 3, "valid_lo'
    second = HEAD + inner(0) + inner(5) + valid(2, 200, 70.0) + inner(2) + valid(3, 300, 70.0) + valid(4, 350, 65.0)
    found = read(first + cut_off + "\n" + second + '{"peak_resident_gib": 1.5}\n{"peak_resident_gib": 1.25}\n')
    assert (found.parameters, found.examples) == (1386874, 1600)
    assert [(one.epoch, one.updates, one.accuracy) for one in found.validations] == [
        (1, 100, 60.0),
        (2, 200, 70.0),
        (3, 300, 70.0),
        (4, 350, 65.0),
    ]
    assert found.best.updates == 300  # of equals the last, which is what fairseq keeps
    assert [found.after(epoch).updates for epoch in (1, 2, 20)] == [100, 200, 350]
    assert (found.updates_per_second, found.peak_gib, found.gpus) == (4.0, 1.5, [])


def test_log_of_a_training_on_gpus() -> None:
    """The process's own memory does not matter there; the least free memory of any interval does."""
    name = f"total memory = 39.500 GB ; name = {'A100':40s}"
    gpus = "".join(f"{STAMP} | fairseq.utils | rank   {n}: capabilities =  8.0  ; {name}\n" for n in (0, 1))
    log = HEAD + gpus + inner(3, gb_free="30.5") + inner(3, gb_free="29") + valid(1, 1, 50)
    log += '{"peak_resident_gib": 4}\n'
    assert (read(log).peak_gib, read(log).gpus) == (10.5, ["A100", "A100"])
    assert read(log).after(0).updates == 1


def test_a_log_of_something_else_is_refused() -> None:
    with pytest.raises(ValueError, match="train.log"):
        read(HEAD)


def test_train_and_test_in_process(tmp_path: Path) -> None:
    """The numbers of the result file are those of the checkpoint, and every test example is scored."""
    data, run = lra_data.write_images(tmp_path / "data"), tmp_path / "run"
    arguments: List[object] = [data, "--task", "lra-image", "--arch", "mega_lra_cifar10", "--encoder-layers", 1]
    arguments += ["--encoder-embed-dim", 8, "--encoder-hidden-dim", 8, "--z-dim", 4, "--n-dim", 2, "--cpu"]
    arguments += ["--chunk-size", 8, "--criterion", "lra_cross_entropy", "--optimizer", "adam", "--lr", 0.01]
    arguments += ["--best-checkpoint-metric", "accuracy", "--maximize-best-checkpoint-metric", "--max-epoch", 3]
    arguments += ["--batch-size", 20, "--log-format", "json", "--log-interval", 1, "--save-dir", run]
    forget_earlier_runs()
    with captured_output() as output:
        assert lra_results.main(["train", *map(str, [*arguments, "--no-epoch-checkpoints", "--num-workers", 0])]) == 0
    forget_earlier_runs()
    (tmp_path / "train.log").write_text(output.getvalue())
    (tmp_path / "train.command").write_text("fairseq-mega-train ...\n")
    options: List[object] = ["test", data, "--task", "lra-image", "--log", tmp_path / "train.log", "--batch", 20]
    options += ["--train-command", tmp_path / "train.command", "--json", tmp_path / "x.json", "--label", "x", "--cpu"]
    options += [
        "--split",
        "test,valid",
        "--command",
        "script",
        "--seed",
        3,
        "--test-batch",
        7,
        "--early-epoch",
        2,
        "--setting",
        "chunk=8",
    ]
    options += ["--setting", "model=mega", "--path"]
    with captured_output() as output:
        assert lra_results.main([*map(str, options), str(run / "absent.pt")]) == 1
        status = lra_results.main([*map(str, options), str(run / "checkpoint_best.pt")])
    forget_earlier_runs()
    assert status == 0, output.getvalue()
    assert "fairseq-mega-validate failed" in output.getvalue()
    result = read_result(tmp_path / "x.json")
    (test_line,) = re.findall(r"x: test accuracy ([\d.]+) % \((\d+) of 29\)", output.getvalue())
    assert f"{result['scores']['test_accuracy']:.2f}" == test_line[0] == f"{100 * result['correct'] / 29:.2f}"
    assert "test_correct" not in output.getvalue()
    assert f'"{result["correct"]} of 29"' in (tmp_path / "test.log").read_text()
    assert result["correct"] == int(test_line[1]) and result["examples"] == lra_data.SIZES["test"]
    assert result["scores"]["best_valid_accuracy"] == max(point["accuracy"] for point in result["curve"])
    assert f"{result['scores']['valid_accuracy']:.2f}" == f"{result['scores']['best_valid_accuracy']:.2f}"
    assert [point["updates"] for point in result["curve"]] == [3, 6, 9]
    assert [point["hours"] for point in result["curve"]] == sorted(point["hours"] for point in result["curve"])
    assert result["settings"]["chunk"] == 8 and result["settings"]["model"] == "mega"
    assert result["settings"]["trained_on"] == "cpu" and result["settings"]["train_examples"] == 60
    assert 0.1 < result["scores"]["peak_memory_gib"] < 100 and result["scores"]["seconds_per_epoch"] > 0
    assert result["scores"]["early_valid_accuracy"] == result["curve"][1]["accuracy"]  # of --early-epoch 2
