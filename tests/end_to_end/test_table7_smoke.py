"""scripts/mega_table7_wmt16.sh: its help, and refused options; tests/reproduce/test_runner.py runs its stages."""

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from tests.support import in_process

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "mega_table7_wmt16.sh"


def run(*options: object) -> in_process.Done:
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": sys.prefix}
    command: List[str] = ["bash", str(SCRIPT), "--skip-setup", *map(str, options)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    return in_process.Done(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "x"], "--gpus: 'x'"),
        (["--where", "direction=en-fr"], "no recipe has the direction 'en-fr': choose from"),
        (["--where", "attention=relu2"], "no recipe has the attention 'relu2': choose from"),
        (["--seeds", "1,,2"], "--seeds"),
        (["--max-update", "0"], "--max-update: '0'"),
        (["--max-update", "500001"], "--max-update is 500001, and the training of mega/table7/"),
        (["--set", "evaluate.average=x"], "evaluate.average=x: mega/table7/en-de/"),
        (["--seeds"], "--seeds needs a value"),
        (["--nonsense"], "unknown option '--nonsense'"),
        (["--gpus", "0", "--no-download"], "europarl"),
    ],
)
def test_refused_options(tmp_path: Path, options: List[str], message: str) -> None:
    """Two of them through the script, which has options of its own; the others are the runner's."""
    work = tmp_path / "work"
    if options[-1] in ("--nonsense", "--no-download"):
        done = run("--work-dir", work, "--gpus", 0, *options)
    else:
        done = in_process.reproduce(SCRIPT.name, "--out", work, "--data", work, "--gpus", 0, *options)
    assert done.returncode != 0
    assert message in done.stderr


def test_help_needs_no_environment() -> None:
    done = subprocess.run(["bash", str(SCRIPT), "--help"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "--where direction=LIST" in done.stdout
