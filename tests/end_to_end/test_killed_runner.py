"""A runner that is killed and started again ends with the result files of one that was left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.runs.results import read_result
from tests.support.helpers import REPOSITORY
from tests.support.in_process import call, in_process  # noqa: F401

RECIPE = ["mega/table2/listops/mega_chunk", "--smoke", "--seeds", "3", "--workers", "1"]
MOMENTS = ["train: begins", "validation after update", "evaluate: begins"]


def start(out: Path) -> "subprocess.Popen[str]":
    quiet = {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "fairseq_mega.lab.reproduce.command", *RECIPE, "--out", str(out)]
    environment = {**os.environ, **quiet, "PYTHONPATH": str(REPOSITORY)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True)


def killed_at(out: Path, moment: str) -> None:
    """Kill the runner and all that it started when it says this."""
    process = start(out)
    assert process.stderr is not None
    said: List[str] = []
    for line in process.stderr:
        said.append(line)
        if moment in line:
            break
    else:
        raise AssertionError("".join(said))
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def scores(out: Path) -> Dict[str, Any]:
    """Return the contents of the result files that do not depend on the time of the run."""
    found = {}
    for path in sorted((out / "results").glob("*.json")):
        result = read_result(path)
        kept = {key: value for key, value in result["scores"].items() if "accuracy" in key}
        settings = {key: value for key, value in result["settings"].items() if key != "conditions"}
        curve = [{key: value for key, value in point.items() if key != "hours"} for point in result["curve"]]
        found[path.name] = (kept, curve, settings, result["examples"], result["seed"], result["label"])
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("in_process")
def test_it_goes_on(tmp_path: Path) -> None:
    for moment in MOMENTS:
        killed_at(tmp_path / "killed", moment)
    for out in ("killed", "alone"):
        done = call(main, *RECIPE, "--out", tmp_path / out)
        assert "Table 2" in done.stdout, done.stderr
    assert scores(tmp_path / "alone") == scores(tmp_path / "killed") != {}
