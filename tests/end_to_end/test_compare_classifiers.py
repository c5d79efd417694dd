"""The comparisons of classifiers that fit a CPU, in their --smoke form."""

import os
import subprocess
import sys

import pytest

from fairseq_mega.lab.comparisons import command as comparisons
from fairseq_mega.lab.report import command as reports
from fairseq_mega.lab.runs.results import make_result, read_result, read_results, write_result
from tests.support import in_process, lra_data
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_processes")]


def run(*command, status=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def compare(*options, status=0):
    """What the script does, in this process."""
    done = in_process.call(comparisons.main, "classifiers", *options)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def compare_by_bash(*options, status=0):
    return run("bash", REPOSITORY / "scripts" / "compare_classifiers.sh", *options, status=status)


def test_images(tmp_path):
    data = lra_data.write_images(tmp_path / "data")
    options = ["--task", "image", "--data", data, "--out", tmp_path / "out", "--chunk", 8, "--smoke", "--threads", 1]
    output = compare(*options)
    for model in ("MEGA, chunk 8", "MEGA without EMA (N = 0), chunk 8", "Transformer, full attention"):
        assert f"| Image | {model} | 0.002 | 1 | " in output and "of 29 |" in output
    results = {result["label"]: result for result in read_results(tmp_path / "out" / "results", "compare-classifiers")}
    assert results["mega"]["settings"]["parameters"] > results["mega-n0"]["settings"]["parameters"]
    assert results["transformer"]["settings"]["updates"] == 4 and results["mega"]["examples"] == 29
    assert compare(*options).count("done before, skipped") == 6
    other = compare(*options, "--lr", "0.01", status=1)
    assert "> lr: 0.01" in other and "was begun with other settings" in other


@pytest.mark.exhaustive
def test_texts(tmp_path):
    (tmp_path / "data").mkdir()
    data = lra_data.write_texts(tmp_path / "data")
    options = ["--task", "text", "--data", data, "--out", tmp_path / "out", "--models", "mega,megalodon", "--smoke"]
    output = compare_by_bash(*options, "--threads", 1)
    for model in ("MEGA", "MEGALODON (our interpretation)"):
        assert f"| Text | {model}, chunk 128 | " in output


@pytest.mark.parametrize(
    "options, message",
    [
        (["--task", "sound"], "--task is 'sound': choose from text, image, listops"),
        (["--task", "text", "--models", "rnn"], "--models is 'rnn': choose from mega, mega-n0, transformer, megalodon"),
        (["--task", "text", "--updates", "0"], "--updates is '0': a whole number of at least 1 is needed"),
        (["--task", "text", "--lr", "high"], "--lr is 'high': a positive number is needed"),
        (["--task", "text"], "src-bin/train.bin does not exist: --data is a folder of fairseq-mega-prepare"),
    ],
)
def test_bad_options(options, message, tmp_path):
    for run_it in (compare, compare_by_bash):
        assert message in run_it("--data", tmp_path, "--out", tmp_path / "out", *options, status=1)
    assert not (tmp_path / "out").exists()


def test_table_of_nothing_is_an_error(tmp_path, capsys):
    write_result(tmp_path / "a.json", make_result("another", "mega", {"a": 1.0}, 1, "command"))
    assert reports.main(["classifiers", str(tmp_path)]) == 1
    assert f"classifiers: error: no result of compare-classifiers in {tmp_path}" in capsys.readouterr().err


def test_table_and_plot_of_several_folders(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.5'")
    for task, label, rate in (("image", "transformer", "0.01"), ("image", "mega", "0.002"), ("text", "mega", "0.002")):
        settings = {"task": task, "lr": rate, "chunk": "8", "parameters": 5000, "updates": 20, "batch": 4}
        scores = {"test_accuracy": 40.0, "best_valid_accuracy": 41.0}
        curve = [{"updates": updates, "accuracy": 30.0 + updates} for updates in (5, 10)]
        for seed in (2, 1):
            result = make_result("compare-classifiers", label, scores, 50, "command", seed, settings, curve=curve)
            write_result(tmp_path / task / f"{label}.{seed}.json", result)
    picture = tmp_path / "curves.png"
    assert reports.main(["classifiers", str(tmp_path / "image"), str(tmp_path / "text"), "--plot", str(picture)]) == 0
    rows = [line.split(" | ")[:4] for line in capsys.readouterr().out.splitlines()[2:]]
    expected = (
        ("Text", "MEGA, chunk 8", "0.002"),
        ("Image", "MEGA, chunk 8", "0.002"),
        ("Image", "Transformer, full attention", "0.01"),
    )
    assert rows == [[f"| {task}", model, rate, seed] for task, model, rate in expected for seed in ("1", "2")]
    assert picture.read_bytes().startswith(b"\x89PNG") and b"source\0" in picture.read_bytes()


def test_speed(tmp_path):
    command = [sys.executable, "-m", "fairseq_mega.lab.benchmarks", "lra-speed"]
    output = run(*command, "--smoke", "--json", tmp_path / "speed.json")
    assert "| transformer-explicit | " in output and "1.00x, 1.00x | 1x, 1x |" in output
    scores = read_result(tmp_path / "speed.json")["scores"]
    for model in ("transformer", "mega", "mega-chunk"):
        ratio = scores["transformer-explicit seconds"] / scores[f"{model} seconds"]
        assert scores[f"{model} speed"] == pytest.approx(ratio) and scores[f"{model} memory"] > 0
    assert "choose from" in run(*command, "--models", "rnn", status=1)
