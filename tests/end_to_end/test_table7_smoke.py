"""scripts/mega_table7_wmt16.sh: every stage on invented text, resuming, and refused options."""

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.reports import results

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mega_table7_wmt16.sh"
STAGES = ["fetch", "unpack", "tokenize", "learn_bpe", "apply_bpe", "clean", "binarize"]
RUN = "de-en.laplace.seed5"
RUN_STAGES = [f"{RUN}.{stage}" for stage in ("train", "average", "translate.best", "translate.average")]


def run(*options: object) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": sys.prefix}
    command: List[str] = ["bash", str(SCRIPT), "--skip-setup", *map(str, options)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)


@pytest.mark.slow
def test_the_smoke_run_scores_every_sentence_and_resumes(tmp_path: Path) -> None:
    work = tmp_path / "work"
    options = ["--smoke", "--direction", "de-en", "--attention", "laplace", "--seeds", 5, "--work-dir", work]
    first = run(*options)
    assert first.returncode == 0, first.stdout + first.stderr
    for stage in STAGES + RUN_STAGES:
        assert f"{stage}: done" in first.stderr
    assert "SMOKE RUN on invented text" in first.stdout
    found = results.read_results(work / "results", "wmt16-newstest2014-smoke")
    assert {result["settings"]["checkpoint"] for result in found} == {"best", "average"}
    for result in found:
        assert result["examples"] == 45
        assert result["seed"] == 5
        assert result["settings"]["direction"] == "de-en"
        assert result["settings"]["attention"] == "laplace"
        assert set(result["scores"]) == {"sacrebleu", "tokenized_bleu"}
        assert "mega_table7_wmt16.sh --skip-setup --smoke" in result["command"]
    outputs = {name: work / "runs" / RUN / f"generate.{name}.txt" for name in ("best", "average")}
    for path in outputs.values():
        assert sum(line.startswith("H-") for line in path.read_text().splitlines()) == 45

    # A stage that was cut short is repeated, all others are skipped.
    (work / ".done" / RUN_STAGES[-1]).unlink()
    before = outputs["average"].read_text()
    outputs["average"].unlink()
    second = run(*options)
    assert second.returncode == 0, second.stdout + second.stderr
    skipped = [stage for stage in STAGES + RUN_STAGES if f"{stage}: done before, skipped" in second.stderr]
    assert skipped == (STAGES + RUN_STAGES)[:-1]
    hypotheses = [
        [line for line in text.splitlines() if line.startswith("H-")]
        for text in (before, outputs["average"].read_text())
    ]
    assert hypotheses[0] == hypotheses[1]

    # Sentences that are missing from a translation end the run.
    lines = outputs["best"].read_text().splitlines()
    outputs["best"].write_text("\n".join(line for line in lines if not line.startswith(("H-44\t", "D-44\t"))))
    third = run(*options)
    assert third.returncode != 0
    assert "44 H- lines found, --expect says 45: 1 missing (first: 44)" in third.stderr

    # Other options do not mix with what is there.
    other = run(*options, "--max-update", 30)
    assert other.returncode != 0
    assert "was begun with other settings" in other.stderr
    assert "< --max-update: 25" in other.stderr and "> --max-update: 30" in other.stderr
    full = run("--gpus", 0, "--no-download", "--work-dir", work)
    assert full.returncode != 0
    assert "belongs to a smoke run" in full.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "3"], "--gpus is 3, which does not divide 8"),
        (["--gpus", "x"], "--gpus is 'x': a whole number"),
        (["--direction", "en-fr"], "--direction is 'en-fr': choose from"),
        (["--attention", "relu2"], "--attention is 'relu2': choose from"),
        (["--seeds", "1,,2"], "--seeds is '1,,2'"),
        (["--max-update", "10"], "--max-update is '10': a whole number of at least 4001"),
        (["--average", "0"], "--average is '0'"),
        (["--seeds"], "--seeds needs a value"),
        (["--nonsense"], "unknown option '--nonsense'"),
        (["--gpus", "0", "--no-download"], "europarl"),
    ],
)
def test_refused_options(tmp_path: Path, options: List[str], message: str) -> None:
    done = run("--work-dir", tmp_path / "work", *options)
    assert done.returncode != 0
    assert message in done.stderr


def test_help_needs_no_environment() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "--direction D" in done.stdout
