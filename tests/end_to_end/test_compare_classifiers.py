"""The comparisons of classifiers that fit a CPU, in their --smoke form."""

import os
import subprocess

import pytest

from fairseq_mega.lab.benchmarks import command as benchmarks
from fairseq_mega.lab.report import command as reports
from fairseq_mega.lab.reproduce import command as reproducing
from fairseq_mega.lab.runs.results import make_result, read_result, read_results, write_result
from tests.support import grids, in_process, lra_data
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_processes")]


def run(*command, status=0):
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def compare(task, *options, status=0):
    """Run the script in this process, assert its status and return its output."""
    done = in_process.call(reproducing.main, f"comparison/{task}", "--gpus", 0, *options)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def compare_by_bash(task, *options, status=0):
    return run(
        "bash", REPOSITORY / "scripts" / "compare_classifiers.sh", "--where", f"task={task}", *options, status=status
    )


def test_images(tmp_path):
    """Data of one's own, with as many classes as they have."""
    data = lra_data.write_images(tmp_path / "data", pixels=1024)
    options = ["--data", data, "--out", tmp_path / "out", "--set", "model.encoder_chunk_size=8", "--smoke"]
    options += ["--where", "name=mega,mega_n0,transformer"]
    output = compare("image", *options)
    for model in ("MEGA, chunk 8", "MEGA without EMA (N = 0), chunk 8", "Transformer, full attention"):
        assert f"| Image | {model} | 0.002 | 1 | " in output and "of 29 |" in output
    found = read_results(tmp_path / "out" / "results", "compare-classifiers-smoke")
    results = {result["settings"]["model"]: result for result in found}
    assert results["mega"]["settings"]["parameters"] > results["mega-n0"]["settings"]["parameters"]
    assert results["transformer"]["settings"]["updates"] == 6 and results["mega"]["examples"] == 29
    classes = len(set((data / "label" / "train.label").read_text().splitlines()))
    assert f"--sentence-class-num {classes} " in results["mega"]["train_command"] and classes != 10
    assert compare("image", *options).count("done before, skipped") == 6
    other = compare("image", *options, "--set", "optimization.lr=0.01")
    assert other.count(".train: begins") == 3 and "| 0.01 |" in other and "| 0.002 |" not in other


@pytest.mark.exhaustive
def test_texts(tmp_path):
    (tmp_path / "data").mkdir()
    data = lra_data.write_texts(tmp_path / "data")
    options = ["--data", data, "--out", tmp_path / "out", "--where", "name=mega,megalodon", "--smoke"]
    output = compare_by_bash("text", *options)
    for model in ("MEGA", "MEGALODON (our interpretation)"):
        assert f"| Text | {model}, chunk 128 | " in output


@pytest.mark.parametrize(
    "task, options, message",
    grids.mostly_exhaustive(
        [
            ("text", ["--where", "task=sound"], "no recipe has the task 'sound'"),
            ("text", ["--where", "name=rnn"], "no recipe has the name 'rnn': choose from mega, "),
            ("text", ["--max-update", "0"], "--max-update: '0'"),
            ("text", ["--set", "optimization.lr=high"], "optimization.lr=high: comparison/text/"),
            ("text", [], "holds no complete data: give yours with --data, or run fairseq-mega-prepare imdb --out"),
        ],
        kept=2,
    ),
)
def test_bad_options(task, options, message, tmp_path):
    given = ["--data", tmp_path, "--out", tmp_path / "out", *options]
    assert message in compare(task, *given, status=1)
    assert not (tmp_path / "out").exists()


def test_table_of_nothing_is_an_error(tmp_path, capsys):
    write_result(tmp_path / "a.json", make_result("another", "mega", {"a": 1.0}, 1, "command"))
    assert reports.main(["classifiers", str(tmp_path)]) == 1
    assert f"classifiers: error: no result of compare-classifiers in {tmp_path}" in capsys.readouterr().err


def test_table_and_plot_of_several_folders(tmp_path, capsys):
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.6'")
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


def test_rows_name_what_is_not_the_recipes(tmp_path, capsys):
    """Changes of a training, but the rate, which has a column; weights of others, which have no curve."""
    common = {"task": "text", "lr": "0.002", "chunk": "8", "parameters": 5000, "updates": 20}
    changed = {**common, "batch": 4, "set": {"optimization.lr": "0.002", "model.dropout": "0.5"}}
    given = {**common, "model": "mega", "recipe": "comparison/text/mega", "weights": {"source": "a.pt"}}
    for name, settings, scores in (
        ("a", changed, {"test_accuracy": 40.0, "best_valid_accuracy": 41.0}),
        ("b", given, {"test_accuracy": 40.0}),
    ):
        curve = [{"updates": 5, "accuracy": 30.0}] if name == "a" else None
        result = make_result("compare-classifiers", "mega", scores, 50, "command", 1, settings)
        write_result(tmp_path / f"{name}.json", {**result, **({"curve": curve} if curve else {})})
    assert reports.main(["classifiers", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "| MEGA, chunk 8, with --set model.dropout=0.5 | 0.002 |" in printed
    assert "| MEGA, chunk 8, weights of a.pt | 0.002 | 1 | 5,000 | 20 | 40.00 % of 50 | - |" in printed
    (tmp_path / "a.json").unlink()
    assert reports.main(["classifiers", str(tmp_path), "--plot", str(tmp_path / "curves.png")]) == 0
    assert "curves.png is not drawn" in capsys.readouterr().err and not (tmp_path / "curves.png").exists()


def test_speed(tmp_path):
    done = in_process.call(benchmarks.main, "lra-speed", "--smoke", "--json", tmp_path / "speed.json")
    assert done.returncode == 0, done.stderr
    output = done.stdout
    assert "| transformer-explicit | " in output and "1.00x, 1.00x | 1x, 1x |" in output
    scores = read_result(tmp_path / "speed.json")["scores"]
    for model in ("transformer", "mega", "mega-chunk"):
        ratio = scores["transformer-explicit seconds"] / scores[f"{model} seconds"]
        assert scores[f"{model} speed"] == pytest.approx(ratio) and scores[f"{model} memory"] > 0
