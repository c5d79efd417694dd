"""Result files, tables and plots from the logs of the Long Range Arena."""

import json
import re
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from fairseq_mega.lab.evaluate import lra_results
from fairseq_mega.lab.evaluate.lra_runs import TASKS, chance_of, stuck
from fairseq_mega.lab.report import command, figure5
from fairseq_mega.lab.runs import training_log
from fairseq_mega.lab.runs.results import make_result, read_result, write_result
from tests.support import lra_data
from tests.support.helpers import captured_output, forget_earlier_runs
from tests.support.prepare_runs import prepare, source_of

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
    return training_log.read_training(text.splitlines(), "train.log")


# --- the log


def test_hours_of_all_starts() -> None:
    end = json.dumps({"epoch": 1, "train_num_updates": "9", "train_train_wall": "700", "train_wall": "1800"})
    log = HEAD + inner(4, train_wall="9", wall="40") + inner(4, train_wall="9", wall="3600")
    log += HEAD + inner(4, train_wall="9", wall="900") + f"{STAMP} | train | {end}\n" + "| killed {\n" + HEAD
    assert training_log.training_hours(log.splitlines()) == 1.5
    assert training_log.training_hours(HEAD.splitlines()) is None


def test_hours_of_validations() -> None:
    """The hours that were logged last before a validation, which needs time itself."""
    log = HEAD + valid(1, 5, 50.0) + inner(4, wall="1800") + valid(2, 10, 60.0) + inner(4, wall="3600")
    log += HEAD + inner(4, wall="900") + valid(3, 15, 70.0)
    assert [found.hours for found in read(log).validations] == [None, 0.5, 1.25]


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
    scores = lra_results.scores_of(found, early_epoch=2, batch=15)
    assert scores == {
        "best_valid_accuracy": 70.0,
        "early_valid_accuracy": 70.0,
        "seconds_per_epoch": 107 / 4.0,
        "peak_memory_gib": 1.5,
    }


def test_log_of_a_training_on_gpus() -> None:
    """The process's own memory does not matter there; the least free memory of any interval does."""
    name = f"total memory = 39.500 GB ; name = {'A100':40s}"
    gpus = "".join(f"{STAMP} | fairseq.utils | rank   {n}: capabilities =  8.0  ; {name}\n" for n in (0, 1))
    log = HEAD + gpus + inner(3, gb_free="30.5") + inner(3, gb_free="29") + valid(1, 1, 50)
    log += '{"peak_resident_gib": 4}\n'
    assert (read(log).peak_gib, read(log).gpus) == (10.5, ["A100", "A100"])
    assert read(log).after(0).updates == 1


@pytest.mark.parametrize("text, missing", [("", "validation"), (valid(1, 1, 50), "size of the model")])
def test_a_log_of_something_else_is_refused(text: str, missing: str) -> None:
    with pytest.raises(ValueError, match=f"train.log contains no {missing}"):
        read(text)


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
    options += ["--command", "script", "--seed", 3, "--test-batch", 7, "--early-epoch", 2, "--setting", "chunk=8"]
    options += ["--setting", "model=mega", "--path"]
    with captured_output() as output:
        assert lra_results.main([*map(str, options), str(run / "absent.pt")]) == 1
        status = lra_results.main([*map(str, options), str(run / "checkpoint_best.pt")])
    forget_earlier_runs()
    assert status == 0, output.getvalue()
    assert "fairseq-mega-validate failed" in output.getvalue()
    result = read_result(tmp_path / "x.json")
    (test_line,) = re.findall(r"x: test accuracy ([\d.]+) % \((\d+) of 29\)", output.getvalue())
    assert f"{result['scores']['test_accuracy']:.2f}" == test_line[0]
    assert "test_correct" not in output.getvalue() and "test_correct" in (tmp_path / "test.log").read_text()
    assert result["correct"] == int(test_line[1]) and result["examples"] == lra_data.SIZES["test"]
    assert result["scores"]["best_valid_accuracy"] == max(point["accuracy"] for point in result["curve"])
    assert [point["updates"] for point in result["curve"]] == [3, 6, 9]
    assert [point["hours"] for point in result["curve"]] == sorted(point["hours"] for point in result["curve"])
    assert result["settings"]["chunk"] == 8 and result["settings"]["model"] == "mega"
    assert result["settings"]["trained_on"] == "cpu" and result["settings"]["train_examples"] == 60
    assert 0.1 < result["scores"]["peak_memory_gib"] < 100 and result["scores"]["seconds_per_epoch"] > 0


# --- tables and plots


def store(folder: Path, task: str, accuracy: float, seed: int = 1, best: Optional[float] = None, **more: Any) -> None:
    settings: Dict[str, Any] = {
        "task": task,
        "model": "mega",
        "attention": TASKS[task].attention,
        "ema_dim": 16,
        "chunk": -1,
        "updates": 100,
        "published_updates": 100,
        "early_epoch": 2,
        "parameters": 1000,
        "trained_on": ["H200"],
        **more,
    }
    best = accuracy if best is None else best
    scores = {"test_accuracy": accuracy, "best_valid_accuracy": best, "early_valid_accuracy": 33.0}
    scores.update(seconds_per_epoch=12.5, peak_memory_gib=3.25)
    curve = [{"epoch": epoch, "updates": 50 * epoch, "accuracy": best - epoch, "loss": 1.0} for epoch in (1, 2, 3)]
    result = make_result("lra", "run", scores, 29, "command", seed, settings, curve=curve)
    write_result(folder / f"{task}.{abs(hash(tuple(map(str, settings.values()))))}.{seed}.json", result)


def printed(capsys: Any, table: int, *arguments: object) -> List[str]:
    assert command.main([f"table{table}", *map(str, arguments)]) == 0
    return capsys.readouterr().out.splitlines()


def cells_under(lines: List[str], title: str, below: int = 1) -> List[str]:
    """Cells of the line that stands so many lines below a paper's row."""
    (row,) = [number for number, line in enumerate(lines) if line.startswith(title)]
    return re.split(r"\s{2,}", lines[row + below].strip())


def test_table2(tmp_path: Path, capsys: Any) -> None:
    for seed, accuracy in ((1, 60.0), (2, 62.0)):
        store(tmp_path, "listops", accuracy, seed)
    for task in ("text", "retrieval", "image", "pathx"):
        store(tmp_path, task, 90.0)
    for seed, accuracy in ((1, 96.0), (2, 50.1)):
        store(tmp_path, "pathfinder", accuracy, seed)
    store(tmp_path, "image", 11.0, attention="softmax")  # of Table 3, not of this one
    store(tmp_path, "image", 12.0, ema_dim=0)  # of Figure 4
    store(tmp_path, "pathx", 70.0, chunk=4096, updates=50)
    store(tmp_path, "text", 80.0, chunk=16)
    store(tmp_path, "text", 65.0, model="transformer", attention="softmax", ema_dim=0)
    ratios = {"mega speed": 2.5, "mega memory": 0.4, "transformer speed": 1.25, "transformer memory": 0.8}
    settings = {"models": "transformer-explicit,transformer,mega"}
    speed = make_result("lra-speed", "4096 tokens", ratios, 1, "command", settings=settings)
    write_result(tmp_path / "speed" / "speed.json", speed)
    lines = printed(capsys, 2, tmp_path, "--speed", tmp_path / "speed" / "speed.json")
    mega = cells_under(lines, "MEGA, paper")
    assert mega[1:] == ["61.00 ±1.41", *["90.00"] * 3, "73.05 ±32.46", "90.00", "82.34", "2.50x", "0.40x"]
    assert cells_under(lines, "MEGA, paper", 2)[1:] == ["2/2", "1/1", "1/1", "1/1", "1/2", "1/1"]
    assert cells_under(lines, "MEGA, paper", 0)[1:3] == ["63.14", "90.43"]
    assert cells_under(lines, "MEGA-chunk, paper")[1:] == [*["-"] * 5, "70.00*", *["-"] * 3]
    assert cells_under(lines, "Transformer, paper")[1:] == ["-", "65.00", *["-"] * 5, "1.25x", "0.80x"]
    assert cells_under(lines, "MEGA-chunk, C = 16, measured", 0)[1:3] == ["-", "80.00"]
    text = "\n".join(lines)
    assert "STUCK AT CHANCE: pathfinder mega laplace N=16 full, seed 2: best validation accuracy 50.10 %\n" in text
    assert text.count("STUCK AT CHANCE") == 1 and "lower the peak rate" in text
    assert "N=0" not in text  # what is not in the table is not among its runs
    assert "beside transformer-explicit (1x), on" in text
    (run,) = [line for line in lines if line.startswith("pathx mega laplace N=16 C=4096")]
    (titles,) = [line for line in lines if line.startswith("Runs")]
    assert titles.index("parameters") + len("parameters") == run.index("1,000") + len("1,000") == 42 + 8 * 14
    assert run.split()[5:] == ["1", "50", "100", "33.00", "2", "12.5", "3.25", "1,000", "on", "1", "x", "H200"]


@pytest.mark.parametrize("report", [["table2"], ["table1"], ["figure4", "--output", "x.png"]])
def test_a_cell_is_of_one_kind_of_settings(report: List[str], tmp_path: Path, capsys: Any) -> None:
    """Results of other settings are no further seeds; earlier versions' results, without conditions, go with any."""
    store(tmp_path, "text", 60.0, 1, conditions="0", precision="fp32")
    store(tmp_path, "text", 61.0, 2, conditions="0", precision="fp32")
    store(tmp_path, "text", 62.0, 3)
    store(tmp_path, "text", 62.0, 1, conditions="1", chunk=128)  # another cell
    name, *options = report
    words = [name, str(tmp_path), *(str(tmp_path / word) if word == "x.png" else word for word in options)]
    assert command.main(words) == 0
    capsys.readouterr()
    store(tmp_path, "text", 10.0, 4, conditions="2", precision="bf16", set={"optimization.lr": "0.1"})
    assert command.main(words) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert all(path.name in said for path in tmp_path.glob("text.*.4.json")) and said.count(".json") == 2
    assert "optimization.lr" in said and "bf16" in said and "OUT/tables" in said


MIXED: Dict[str, Tuple[Dict[str, Any], Dict[str, Any], str]] = {  # settings of two results of a cell, what is said
    "the same seed twice": ({}, {"seed": 1}, "of seed 1"),
    "another training": ({"training_digest": "a"}, {"training_digest": "b"}, "training_digest: a and b"),
    "another evaluation": ({"evaluation": "table2-a"}, {"evaluation": "table2-b"}, "evaluation: table2-a and table2-b"),
    "other data": ({"data_digest": "a"}, {"data_digest": "b"}, "data_digest: a and b"),
    "other updates": ({}, {"updates": 90}, "updates: 100 and 90"),
    "an earlier version's in bf16": ({"conditions": "0"}, {"precision": "bf16"}, "precision: none and bf16"),
    "earlier versions'": ({"precision": "fp32"}, {"precision": "bf16"}, "precision: fp32 and bf16"),
    "the same weights twice": ({"weights": {"sha256": "ab"}}, {"seed": 2, "weights": {"sha256": "ab"}}, "SHA-256 ab"),
    "TF32, which counts as float32": ({"precision": "tf32"}, {"precision": "fp32"}, ""),
    "the evaluation of another table": ({"evaluation": "table2-a"}, {"evaluation": "figure4-a"}, ""),
    "updates of --patience": ({"extra": "--patience 3"}, {"extra": "--patience 3", "updates": 90}, ""),
    "an earlier version's": ({"conditions": "0", "training_digest": "a", "data_digest": "b"}, {}, ""),
}


@pytest.mark.parametrize("name", MIXED)
def test_a_mean_is_of_one_kind(name: str, tmp_path: Path, capsys: Any) -> None:
    """Refuse a mean of results that fairseq-mega-reproduce keeps apart, and name both files."""
    one, other, said = MIXED[name]
    for number, more in enumerate((one, other), start=1):
        store(tmp_path / str(number), "text", 60.0, **{"seed": number, "recipe": "mega/table2/text/mega", **more})
        next((tmp_path / str(number)).iterdir()).rename(tmp_path / f"{number}.json")
    assert command.main(["table2", str(tmp_path)]) == bool(said)
    printed = capsys.readouterr()
    assert said in printed.err and bool(printed.err) == bool(said)
    assert not said or ("1.json" in printed.err and "2.json" in printed.err and printed.err.count("\n") == 1)


def test_a_partial_run_at_chance_is_no_failure_yet(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "pathfinder", 50.0, updates=10)
    text = "\n".join(printed(capsys, 2, tmp_path))
    assert "best validation accuracy 50.00 % (after 10 of 100 updates: too early to tell)" in text
    assert "* fewer updates than in the paper" in text


def test_chance_is_judged_by_the_validation_set(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "listops", 15.0, best=40.0)
    lines = printed(capsys, 2, tmp_path)
    assert cells_under(lines, "MEGA, paper", 2)[1] == "1/1" and "STUCK" not in "\n".join(lines)


@pytest.mark.parametrize(("task", "chance"), [("listops", 17.0), ("text", 50.0), ("image", 10.0), ("speech", 10.0)])
def test_chance_is_the_best_guess_without_an_input(task: str, chance: float) -> None:
    assert chance_of(task) == chance
    runs = [{"scores": {"best_valid_accuracy": best}, "settings": {"task": task}} for best in (chance + 3, chance + 5)]
    assert [stuck(run) for run in runs] == [True, False]


def test_s4d_has_a_row_of_its_own(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "text", 80.0, model="s4d", attention="none", ema_dim=64)
    store(tmp_path, "text", 60.0, model="transformer", ema_dim=0)
    lines = printed(capsys, 2, tmp_path)
    assert cells_under(lines, "S4D-Inv, Gu et al. (2022)")[2] == "80.00"
    assert cells_under(lines, "Transformer, paper")[2] == "60.00"
    assert any(line.startswith("text s4d ") for line in lines)


def test_the_functions_of_figure5() -> None:
    """Both are the same at the median of Laplace, where relu2 is a half too: x = sqrt(1/2)."""
    for points in figure5.functions().values():
        x, y = min(points, key=lambda point: abs(point[0] - 0.5**0.5))
        assert abs(y - 0.5) < 0.02 and abs(x - 0.5**0.5) < 0.01


def test_table3_and_table4(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "text", 90.0)
    store(tmp_path, "text", 89.0, attention="relu2")
    store(tmp_path, "text", 10.0, attention="relu2", chunk=128)
    store(tmp_path, "speech", 97.0, model="mega-big", chunk=1000)
    lines = printed(capsys, 3, tmp_path)
    assert cells_under(lines, "relu2, paper")[1:] == ["89.00", "-"]
    assert cells_under(lines, "laplace, paper")[1:] == ["not yet", "-"]
    assert not any(line.startswith("speech") for line in lines)
    assert cells_under(printed(capsys, 3, tmp_path, "--chunk", 128), "relu2, paper")[1:] == ["10.00", "-"]
    lines = printed(capsys, 4, tmp_path)
    assert cells_under(lines, "MEGA-chunk big, paper")[1:] == ["1,000", "97.00"]
    assert cells_under(lines, "MEGA-chunk base, paper")[1:] == ["-", "not yet"]


def test_scales_of_speech_are_rows_of_their_own(tmp_path: Path, capsys: Any) -> None:
    for scaling, accuracy in (("once", 95.0), ("twice", 97.0)):
        store(tmp_path, "speech", accuracy, model="mega-base", chunk=1000, scaling=scaling)
    text = "\n".join(printed(capsys, 4, tmp_path))
    assert re.search(r"measured, C = 1000, scaled once +1,000 +95\.00", text)
    assert re.search(r"measured, C = 1000, scaled twice +1,000 +97\.00", text)


def test_empty_and_missing_folders(tmp_path: Path, capsys: Any) -> None:
    assert all("not yet" in "\n".join(printed(capsys, table, tmp_path)) for table in (2, 3, 4))
    assert command.main(["table2", str(tmp_path / "no")]) == 1
    assert "does not exist" in capsys.readouterr().err
    for figure, message in (("4", "no result of MEGA on Text or Image"), ("5", "no result of MEGA on Pathfinder")):
        assert command.main([f"figure{figure}", str(tmp_path), "--output", str(tmp_path / "x.png")]) == 1
        assert message in capsys.readouterr().err
    assert not (tmp_path / "x.png").exists()


def test_figures(tmp_path: Path, capsys: Any) -> None:
    for dims, accuracy in ((0, 60.0), (16, 90.0), (2, 80.0)):
        store(tmp_path, "text", accuracy, ema_dim=dims)
    store(tmp_path, "text", 88.0, chunk=64)
    store(tmp_path, "text", 92.0, seed=2)
    for function, accuracy in (("laplace", 96.0), ("relu2", 95.0)):
        store(tmp_path, "pathfinder", accuracy, attention=function)
    for figure in ("4", "5"):
        image = tmp_path / f"figure{figure}.png"
        assert command.main([f"figure{figure}", str(tmp_path), "--output", str(image)]) == 0
        assert image.stat().st_size > 10000
    lines = capsys.readouterr().out.splitlines()
    values = [line.split()[1:] for line in lines if line.strip().startswith("Text")]
    wanted = [["0", "60.00"], ["2", "80.00"], ["16", "91.00", "±1.41"], ["64", "88.00"], ["full", "91.00", "±1.41"]]
    assert values == wanted
    assert "relu2, seed 1        92.00   94.00    1.00" in lines


# --- the stand-ins of --smoke


@pytest.mark.parametrize("dataset", ["imdb", "aan", "cifar10", "speech-commands"])
def test_made_up_data_pass_through_the_preparation(dataset: str, tmp_path: Path) -> None:
    prepare(dataset, "--out", tmp_path / "out", "--smoke").succeeded()
    splits = source_of(tmp_path / "out")["splits"]
    assert all(split["examples"] > 0 for split in splits.values())
    assert sum(count > 0 for count in splits["test"]["labels"].values()) > 1
