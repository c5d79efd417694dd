"""The scripts of the tables and figures of the Long Range Arena and of speech, in their --smoke form."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from fairseq_mega.reports.results import read_results
from tests.support import lra_data
from tests.support.helpers import REPOSITORY


def run(script: str, *options: object, status: int = 0) -> str:
    command = ["bash", str(REPOSITORY / "scripts" / script), "--skip-setup", *map(str, options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_MEGA_VENV": sys.prefix}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the scripts share."""
    return tmp_path_factory.mktemp("lra")


@pytest.mark.slow
def test_table2_figure5_and_resuming(out: Path) -> None:
    """From nothing to the numbers; a model that is in the figure too is trained once; a longer training goes on."""
    options = ["--smoke", "--seeds", 7, "--out", out]
    table = ["--task", "pathfinder", "--models", "mega,mega-chunk", "--chunk", -1]
    output = run("mega_table2_lra.sh", *options, *table, "--keep-schedule", "--max-update", 3)
    mega = "pathfinder.mega.laplace.n16.full.seed7"
    assert f"{mega}.train.3: done" in output and "c-1" not in output and "SMOKE RUN" in output
    (first,) = read_results(out / "results", "lra-smoke")
    assert first["examples"] == 5 and first["settings"]["updates"] == 3 and first["seed"] == 7
    assert "--total-num-update 250000 --max-update 3 " in first["train_command"]
    assert "--task pathfinder" in first["command"]

    # The same run, further on: its first epoch is not repeated.
    figure = ["--functions", "laplace", "--keep-schedule", "--max-update"]
    output = run("mega_figure5_stability.sh", *options, *figure, 6)
    assert "going on from" in output and f"{mega}.train.6: done" in output
    (second,) = read_results(out / "results", "lra-smoke")
    assert [point["updates"] for point in second["curve"]] == [3, 5, 6]
    assert (out / "figure5.png").stat().st_size > 10000
    assert "laplace, seed 7" in output
    output = run("mega_figure5_stability.sh", *options, *figure, 5, status=1)
    assert "was trained for 6 updates, --max-update is 5" in output
    output = run("mega_figure5_stability.sh", *options, "--functions", "laplace", "--", "--lr", 0.1, status=1)
    assert f"{mega} was begun with other settings" in output and "> options: --lr 0.1" in output
    assert "begun with other settings" in run("mega_table2_lra.sh", "--gpus", 0, "--out", out, status=1)


@pytest.mark.slow
def test_table3_and_figure4_share_a_run(out: Path, tmp_path: Path) -> None:
    data = lra_data.write_images(tmp_path / "image")
    options = ["--smoke", "--seeds", 1, "--out", out, "--task", "image", "--data", data, "--max-update", 4]
    output = run("mega_table3_attention_functions.sh", *options, "--functions", "laplace")
    assert "laplace, paper" in output and "90.43" in output
    output = run("mega_figure4_ablations.sh", *options, "--dims", "0,16", "--chunks", -1)
    assert output.count("image.mega.laplace.n16.full.seed1.train: done before, skipped") == 2
    found = [result for result in read_results(out / "results", "lra-smoke") if result["settings"]["task"] == "image"]
    assert {result["settings"]["ema_dim"] for result in found} == {0, 16}
    assert {result["examples"] for result in found} == {lra_data.SIZES["test"]}
    assert "Image      0" in output and (out / "figure4.png").stat().st_size > 10000


@pytest.mark.slow
def test_table4(out: Path, tmp_path: Path) -> None:
    data = lra_data.write_speech(tmp_path)
    options = ["--smoke", "--seeds", 1, "--out", out, "--data", data, "--chunk", 10, "--models", "big"]
    output = run("mega_table4_speech.sh", *options, "--bf16")
    assert "MEGA-chunk big, paper" in output and "97.30" in output
    (result,) = (row for row in read_results(out / "results", "lra-smoke") if row["settings"]["task"] == "speech")
    assert "--arch mega_sc_raw_big" in result["train_command"] and "--bf16" in result["train_command"]
    assert "--lr 0.008 " in result["train_command"]
    saved = torch.load(out / "runs" / "speech.mega-big.laplace.n16.c10.seed1" / "checkpoints" / "checkpoint_best.pt")
    weight = saved["model"]["head.output.weight"]  # fairseq widens what it saves
    assert torch.equal(weight, weight.bfloat16().float())


REFUSED = [
    ("mega_table2_lra.sh", ["--task", "listop"], "--task is 'listop': choose from listops, text"),
    ("mega_table2_lra.sh", ["--models", "mega,luna"], "--models is 'luna': choose from mega, mega-chunk, transformer"),
    ("mega_table2_lra.sh", ["--models", "mega,"], "--models is 'mega,': names separated by commas"),
    ("mega_table2_lra.sh", ["--models", "mega-chunk", "--chunk", -1], "leaves mega-chunk out"),
    ("mega_table2_lra.sh", ["--chunk", 100, "--task", "image"], "--chunk is 100, which does not divide the 1024"),
    ("mega_table2_lra.sh", ["--seeds", "1;2"], "--seeds is '1;2': whole numbers"),
    ("mega_table2_lra.sh", ["--gpus", "x"], "--gpus is 'x': a whole number"),
    ("mega_table2_lra.sh", ["--max-update", 0], "--max-update is '0': a whole number of at least 1"),
    ("mega_table2_lra.sh", ["--max-update", 25001], "--max-update is 25001, and the paper's training of --task text"),
    ("mega_table2_lra.sh", ["--keep-schedule"], "--keep-schedule needs --max-update"),
    ("mega_table2_lra.sh", ["--transformer-lr", "fast"], "--transformer-lr is 'fast': a number"),
    ("mega_table2_lra.sh", ["--seeds"], "--seeds needs a value"),
    ("mega_table2_lra.sh", ["--fp16"], "unknown option '--fp16'"),
    ("mega_table3_attention_functions.sh", ["--functions", "gelu"], "--functions is 'gelu': choose from softmax"),
    ("mega_table3_attention_functions.sh", ["--task", "pathx"], "--task is 'pathx': choose from text, image, all"),
    ("mega_table4_speech.sh", ["--chunk", 300], "--chunk is 300, which does not divide the 16000"),
    ("mega_table4_speech.sh", ["--scaling", "thrice"], "--scaling is 'thrice': choose from once, twice"),
    ("mega_figure4_ablations.sh", ["--dims", "1,-1"], "--dims is '1,-1': whole numbers"),
    ("mega_figure4_ablations.sh", ["--chunks", "16,x"], "--chunks is 'x'"),
    ("mega_figure5_stability.sh", ["--functions", "silu"], "--functions is 'silu': choose from laplace, relu2"),
]


@pytest.mark.parametrize("script, options, message", REFUSED)
def test_refused_options(tmp_path: Path, script: str, options: list, message: str) -> None:
    assert message in run(script, "--out", tmp_path / "out", *options, status=1)
    assert not (tmp_path / "out").exists()


RECIPES = """
source {script}
venv=x
for one in listops text retrieval image pathfinder pathx speech; do
  for gpus in 0 1 2 4 5 8; do
    recipe $one
    if (batches $one) 2>/dev/null; then
      batches $one
      places=$((gpus > 0 ? gpus : 1))
      echo $one $gpus: $step x $update_freq x $places, $norm, $lr $decay $dropout $warmup $updates $power
    fi
  done
done
"""


def test_recipes_keep_the_published_batch_on_any_number_of_gpus() -> None:
    """Batch per step x accumulation x GPUs, norm, rate, decay, dropout, warm-up, updates, power, as published."""
    program = "set -euo pipefail" + RECIPES.format(script=REPOSITORY / "scripts" / "lra.sh")
    done = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    found = dict(line.split(": ") for line in done.stdout.splitlines())
    published = {
        "listops 1": "64 x 1 x 1, layernorm, 0.001 0.01 0.1 3000 90000 1.0",
        "text 1": "25 x 2 x 1, scalenorm, 0.004 0.01 0.1 10000 25000 1.0",
        "retrieval 1": "8 x 8 x 1, scalenorm, 0.003 0.04 0.1 10000 91960 1.0",
        "image 1": "50 x 1 x 1, batchnorm, 0.01 0.02 0.0 9000 180000 1.0",
        "pathfinder 1": "128 x 1 x 1, batchnorm, 0.01 0.01 0.0 50000 250000 1.0",
        "pathx 8": "2 x 8 x 8, syncbatchnorm, 0.01 0.01 0.0 25000 125000 2.0",
        "speech 1": "20 x 1 x 1, batchnorm, 0.01 0.01 0.0 10000 250000 1.0",
    }
    assert {key: found[key] for key in published} == published
    assert found["pathx 1"].startswith("16 x 8 x 1, syncbatchnorm")  # 16 samples in the statistics there, too
    assert found["image 2"].startswith("25 x 1 x 2, syncbatchnorm")
    assert found["text 5"].startswith("10 x 1 x 5") and "text 4" not in found and "image 8" not in found
    batches = {"listops": 64, "text": 50, "retrieval": 64, "image": 50, "pathfinder": 128, "pathx": 128, "speech": 20}
    for key, text in found.items():
        step, accumulated, places = map(int, text.split(",")[0].split(" x "))
        assert step * accumulated * places == batches[key.split()[0]], key
