"""The scripts of the tables and figures of the Long Range Arena and of speech, in their --smoke form."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from fairseq_mega.lab.runs.results import read_results
from tests.support import in_process, lra_data
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_processes")


def run(script: str, *options: object, status: int = 0) -> str:
    """Run a script in this process, assert its status and return its output."""
    done = in_process.reproduce(script, *options)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def run_by_bash(script: str, *options: object, status: int = 0) -> str:
    command = ["bash", str(REPOSITORY / "scripts" / script), "--skip-setup", *map(str, options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_MEGA_VENV": sys.prefix}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the scripts share."""
    return tmp_path_factory.mktemp("lra")


def results_of(out: Path, table: str) -> List[Dict[str, Any]]:
    """The results of the recipes of a table."""
    found = read_results(out / "results", "lra-smoke")
    return [result for result in found if result["settings"]["recipe"].startswith(f"mega/{table}/")]


@pytest.mark.slow
def test_table2_figure5_and_resuming(out: Path) -> None:
    """Scripts make the numbers from nothing; a model of table and figure is trained once; a longer training goes on."""
    options = ["--smoke", "--seeds", 7, "--out", out]
    table = ["--where", "task=pathfinder", "--where", "name=mega"]
    output = run("mega_table2_lra.sh", *options, *table, "--keep-schedule", "--max-update", 3)
    mega = r"pathfinder\.mega\.laplace\.n16\.full\.seed7\.\w{8}"
    assert re.search(rf"{mega}\.train\.3: done", output) and "SMOKE RUN" in output
    (first,) = results_of(out, "table2")
    assert first["examples"] == 5 and first["settings"]["updates"] == 3 and first["seed"] == 7
    assert re.search(r"--max-update 3 .*--total-num-update 250000\.0 ", first["train_command"])
    assert "--where task=pathfinder" in first["command"]

    # The same run, further on: its first epoch is not repeated.
    figure = ["--where", "attention=laplace", "--keep-schedule", "--max-update"]
    output = run("mega_figure5_stability.sh", *options, *figure, 6)
    assert "going on from" in output and re.search(rf"{mega}\.train\.6: done", output)
    (second,) = results_of(out, "figure5")
    assert [point["updates"] for point in second["curve"]] == [3, 5, 6]
    assert (out / "figure5.png").stat().st_size > 10000
    assert "laplace, seed 7" in output
    output = run("mega_figure5_stability.sh", *options, *figure, 5, status=1)
    assert "was trained for 6 updates, --max-update is 5" in output
    assert re.search(rf"1 of 1 runs failed: {mega}", output)


@pytest.mark.slow
def test_table3_and_figure4_share_a_run(out: Path, tmp_path: Path) -> None:
    data = lra_data.write_images(tmp_path / "image")
    options = ["--smoke", "--seeds", 1, "--out", out, "--where", "task=image", "--data", data, "--max-update", 4]
    output = run("mega_table3_attention_functions.sh", *options, "--where", "attention=laplace")
    assert "laplace, paper" in output and "90.43" in output
    output = run("mega_figure4_ablations.sh", *options, "--where", "name=n0,n16,full")
    skipped = r"image\.mega\.laplace\.n16\.full\.seed1\.\w{8}\.train: done before, skipped"
    assert len(re.findall(skipped, output)) == 1 and output.count(".train: begins") == 1
    found = results_of(out, "figure4")
    assert {result["settings"]["ema_dim"] for result in found} == {0, 16}
    assert {result["examples"] for result in found} == {lra_data.SIZES["test"]}
    assert re.search(r"EMA dimensions N .* Image\n0 +\d", output) and (out / "figure4.png").stat().st_size > 10000


@pytest.mark.slow
@pytest.mark.exhaustive  # tests/reproduce/test_smoke.py trains it
def test_table4(out: Path, tmp_path: Path) -> None:
    data = lra_data.write_speech(tmp_path)
    options = ["--smoke", "--seeds", 1, "--out", out, "--data", data, "--where", "name=big"]
    options += ["--set", "model.encoder_chunk_size=10"]
    output = run_by_bash("mega_table4_speech.sh", *options, "--bf16")
    assert "MEGA-chunk big, paper" in output and "97.30" in output
    (result,) = results_of(out, "table4")
    assert "--arch mega_sc_raw_big" in result["train_command"] and "--amp --bf16" in result["train_command"]
    assert "--lr 0.008 " in result["train_command"]
    (folder,) = (out / "runs").glob("speech.mega-big.laplace.n16.c10.seed1.*")
    saved = torch.load(folder / "checkpoints" / "checkpoint_best.pt")
    weight = saved["model"]["head.output.weight"]  # only products are of bfloat16
    assert weight.dtype == torch.float32 and not torch.equal(weight, weight.bfloat16().float())


REFUSED = [
    ("mega_table2_lra.sh", ["--where", "task=listop"], "no recipe has the task 'listop': choose from listops, text"),
    ("mega_table2_lra.sh", ["--where", "name=luna"], "no recipe has the name 'luna': choose from mega, mega_chunk"),
    ("mega_table2_lra.sh", ["--where", "name=mega,"], "--where 'name=mega,': write it as KEY=VALUE"),
    ("mega_table2_lra.sh", ["--where", "names=mega"], "no recipe has the key 'names': choose from name, "),
    ("mega_table2_lra.sh", ["--models", "mega"], "unknown option '--models'"),
    ("mega_table2_lra.sh", ["--set", "image:model.encoder_chunk_size=100"], "100, which does not divide the 1024"),
    ("mega_table2_lra.sh", ["--seeds", "1;2"], "--seed: '1;2'"),
    ("mega_table2_lra.sh", ["--gpus", "x"], "--gpus: 'x'"),
    ("mega_table2_lra.sh", ["--max-update", 0], "--max-update: '0'"),
    (
        "mega_table2_lra.sh",
        ["--gpus", 0, "--max-update", 25001],
        "--max-update is 25001, and the training of mega/table2/text/mega has 25000",
    ),
    ("mega_table2_lra.sh", ["--keep-schedule"], "--keep-schedule needs --max-update"),
    ("mega_table2_lra.sh", ["--set", "transformer:optimization.lr=fast"], "transformer has [0.001] here"),
    ("mega_table2_lra.sh", ["--set", "optimization.lr"], "write it as group.option=value"),
    ("mega_table2_lra.sh", ["--set", "optimisation.lr=1"], "the group 'optimisation' is unknown: choose from common"),
    ("mega_table2_lra.sh", ["--set", "common.seed=1"], "give --seeds instead"),
    ("mega_table2_lra.sh", ["--seeds"], "--seeds needs a value"),
    ("mega_table2_lra.sh", ["--fp16"], "unknown option '--fp16'"),
    ("mega_table3_attention_functions.sh", ["--where", "attention=gelu"], "'gelu': choose from softmax"),
    ("mega_table3_attention_functions.sh", ["--where", "task=pathx"], "'pathx': choose from text, image"),
    ("mega_table4_speech.sh", ["--set", "model.encoder_chunk_size=300"], "300, which does not divide the 16000"),
    ("mega_table4_speech.sh", ["--set", "task.sc_scaling=thrice"], "invalid choice: 'thrice'"),
    ("mega_figure4_ablations.sh", ["--set", "n16:model.encoder_n_dim=x"], "n16 has 16 here"),
    ("mega_figure4_ablations.sh", ["--set", "n3:model.encoder_n_dim=3"], "changes none of the recipes"),
    ("mega_figure5_stability.sh", ["--where", "attention=silu"], "'silu': choose from laplace, relu2"),
]


@pytest.mark.parametrize("script, options, message", REFUSED)
def test_refused_options(tmp_path: Path, script: str, options: list, message: str, exhaustive: bool) -> None:
    """The first ones of a script come through the script itself, with --exhaustive those of every script."""
    first = next(words for name, words, _ in REFUSED if name == script or not exhaustive)
    run_it = run_by_bash if options is first else run
    assert message in run_it(script, "--out", tmp_path / "out", "--gpus", 0, *options, status=1)
    assert not (tmp_path / "out").exists()
