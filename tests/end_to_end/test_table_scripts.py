"""The scripts of tables, figures and comparisons, in their --smoke form, from the data to the table."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.reproduce import command as reproducing
from fairseq_mega.lab.runs.results import read_result, read_results
from tests.support import in_process, lra_data, tiny_trainings
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("no_processes")]


def ended(done: Any, status: int) -> str:
    """Assert the status of a run and return its output."""
    assert done.returncode == status, done.stdout + done.stderr
    return str(done.stdout + done.stderr)


def compare(recipes: str, *options: object) -> str:
    """Run recipes of comparisons in this process."""
    return ended(in_process.call(reproducing.main, f"comparison/{recipes}", "--gpus", 0, *options), 0)


def run_by_bash(script: str, *options: object, status: int = 0) -> str:
    command = ["bash", str(REPOSITORY / "scripts" / script), "--skip-setup", *map(str, options)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_MEGA_VENV": sys.prefix}
    return ended(subprocess.run(command, capture_output=True, text=True, env=environment), status)


def test_compare(tmp_path: Path) -> None:
    """Text of one's own, in the folder of fairseq-preprocess; other contexts are other scores of the same training."""
    data = tiny_trainings.write_text(tmp_path / "text")
    options = ["--data", data, "--out", tmp_path / "out", "--smoke", "--set", "optimization.lr=0.002"]
    options += ["--where", "name=transformer,mega"]
    for corpus in ("wikitext2", "bytes"):
        output = compare(corpus, *options)
        models = tuple(f"comparison/{corpus}/{model}, with " for model in ("mega", "transformer"))
        assert len([line for line in output.splitlines() if line.startswith(models)]) == 7 and "SMOKE RUN" in output
    contexts = "evaluate.contexts=[{exact_contexts: [128, 256, 1024, 4096], segments: [1]}]"
    exact = run_by_bash("compare_language_models.sh", *options, "--where", "name=mega", "--set", contexts)
    assert exact.count(".train: done before") == 1 and exact.count("evaluate: begins") == 1
    assert len(list((tmp_path / "out" / "results").glob("language-models.wikitext2.mega.*-test-x*.json"))) == 4


def test_compare_classifiers(tmp_path: Path) -> None:
    """Data of one's own decide the number of classes."""
    data = lra_data.write_images(tmp_path / "data", pixels=1024)
    options = ["--data", data, "--out", tmp_path / "out", "--set", "model.encoder_chunk_size=8", "--smoke"]
    output = compare("image", *options, "--where", "name=mega,transformer")
    for model in ("mega, with --set model.encoder_chunk_size=8 ", "transformer"):
        assert any(line.startswith(f"comparison/image/{model}") and "0.002" in line for line in output.splitlines())
    for result in read_results(tmp_path / "out" / "results", "compare-classifiers-smoke"):
        assert f"--sentence-class-num {lra_data.CLASSES} " in result["train_command"]


def test_megalodon_table2(tmp_path: Path) -> None:
    """A toy answers invented questions of each data set, with the paper's worked examples."""
    out = tmp_path / "long questions"
    command = ["bash", str(REPOSITORY / "scripts" / "megalodon_table2.sh")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FAIRSEQ_MEGA_VENV": sys.prefix}
    done = subprocess.run([*command, "--smoke", str(out)], capture_output=True, text=True, env=environment)
    ended(done, 0)
    for name, shots in (("narrative_qa", 0), ("qasper", 2), ("qmsum", 1)):
        result = read_result(out / f"{name}.json")
        assert (result["examples"], result["settings"]["shots"]) == (3, shots)
    refused = subprocess.run([*command, "model.pt", "--cpu"], capture_output=True, text=True, env=environment)
    assert refused.returncode == 1 and "'--cpu'" in refused.stderr
