"""Two processes of torchrun train as one does with two batches for an update."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from tests.support import helpers, hydra_runs, tiny_trainings

SCRIPT = "import sys; from fairseq_mega.cli.console import train; sys.exit(train())"
UPDATES: List[object] = ["--max-update", 3, "--clip-norm", 0.5, "--dropout", 0, "--no-epoch-checkpoints"]
UPDATES += ["--num-workers", 0]
PIECES: List[object] = ["--variant-block-multiple-min", 1, "--variant-block-multiple-max", 5]
STARTERS: Dict[str, List[object]] = {
    "torchrun": ["-m", "torch.distributed.run"],
    "launch": ["-m", "torch.distributed.launch"],  # gives --local-rank to each process
}


def start(starter: str, folder: Path, arguments: List[object]) -> str:
    """Train with two processes on the CPU; returns what they printed."""
    script = folder / "train.py"
    script.write_text(SCRIPT)
    program: List[object] = ["-m", "fairseq_cli.train", "--user-dir", "fairseq_mega"]
    words = [sys.executable, *STARTERS[starter], "--nproc_per_node", 2, "--master_port", helpers.free_port()]
    words += program if starter == "torchrun" else [script]
    variables = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([*map(str, [*words, *arguments, "--cpu"])], env=variables, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def weights(folder: Path) -> Dict[str, Any]:
    return torch.load(folder / "checkpoint_last.pt", weights_only=False)["model"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("starter", "kind", "shared", "both"),
    [
        ("torchrun", "translation", [], []),
        ("launch", "language model", ["--update-freq", 2, "--chunk-parallel-size", 2], PIECES),
    ],
    ids=["data parallel", "chunk parallel"],
)
def test_two_processes_train_as_one_does(
    starter: str,
    kind: str,
    shared: List[object],
    both: List[object],
    trainings: tiny_trainings.Trainings,
    tmp_path: Path,
) -> None:
    options = [*UPDATES, *both]
    alone = trainings.arguments(kind, *options, "--update-freq", 2, "--cpu", "--save-dir", tmp_path / "one")
    one = helpers.run_fairseq("train", alone)
    two = start(starter, tmp_path, trainings.arguments(kind, *options, *shared, "--save-dir", tmp_path / "two"))
    pattern = "loss|gnorm|clip|num_updates|^wpb|^bsz"
    assert tiny_trainings.numbers(one, pattern) == tiny_trainings.numbers(two, pattern)
    assert len(tiny_trainings.numbers(one, pattern)) == 4
    expected, found = weights(tmp_path / "one"), weights(tmp_path / "two")
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5, msg=name)


@pytest.mark.slow
def test_two_processes_of_fairseq_hydra_train(tiny_corpus: Path, tmp_path: Path) -> None:
    """They train together, though fairseq imports the plugin after it has begun a training of one process.

    The model is a preset with another number of layers.
    """
    folder = hydra_runs.write(tmp_path / "config")
    settings = [f"task.data={tiny_corpus}", f"common.user_dir={helpers.REPOSITORY / 'fairseq_mega'}"]
    settings += ["+model.dropout=0", "model.encoder_layers=1", "checkpoint.no_epoch_checkpoints=true"]
    alone = ["checkpoint.save_dir=one", "optimization.update_freq=[2]"]
    done = hydra_runs.start(folder, "run", [*settings, *alone], folder)
    assert done.returncode == 0, done.stdout + done.stderr
    saved = torch.load(folder / "one" / "checkpoint_last.pt", weights_only=False)
    assert saved["cfg"]["model"]["encoder_embed_dim"] == 64 and saved["cfg"]["model"]["encoder_layers"] == 1
    assert not any("encoder.layers.1." in name for name in saved["model"])
    words = [sys.executable, *STARTERS["torchrun"], "--nproc_per_node", 2, "--master_port", helpers.free_port()]
    words += ["-m", "fairseq_cli.hydra_train", "--config-dir", folder, "--config-name", "run", *settings]
    variables = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    command = [*map(str, [*words, "checkpoint.save_dir=two"])]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    expected, found = weights(folder / "one"), weights(folder / "two")
    for name, weight in expected.items():
        torch.testing.assert_close(found[name], weight, rtol=1e-4, atol=1e-5, msg=name)
