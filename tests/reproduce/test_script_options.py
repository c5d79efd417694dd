"""Scripts of the tables: options are checked before there is an environment."""

import shlex
import subprocess
import sys
from typing import List

import pytest

from fairseq_mega.lab.reproduce import options
from fairseq_mega.lab.runs.options import ROOT
from tests.support.helpers import REPOSITORY
from tests.support.in_process import words_of


def check(script: str, *words: str, python: List[str]) -> "subprocess.CompletedProcess[str]":
    """Check a command line as scripts/lib.sh does."""
    module = [str(REPOSITORY / "scripts" / "check_options.py"), "fairseq_mega.lab.reproduce"]
    command = [*python, *module, str(REPOSITORY / "scripts" / script), *words_of(script), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("python", [[sys.executable, "-I", "-S"], [sys.executable]], ids=["bare", "environment"])
def test_nothing_has_to_be_installed(python: List[str]) -> None:
    done = check("mega_table2_lra.sh", "--help", python=python)
    assert done.returncode == 0 and "--max-update N" in done.stdout and "Long Range Arena" in done.stdout
    for option in ("--nonsense", "--seeds"):
        refused = check("mega_table2_lra.sh", option, python=python)
        assert refused.returncode == 1 and not refused.stdout
        (line,) = refused.stderr.splitlines()
        assert line.startswith("mega_table2_lra.sh: error: ") and option in line
    printed = check("mega_table2_lra.sh", "--venv", "a b", "--smoke", "--", "--lr", "3", python=python).stdout
    out = ROOT / "outputs" / "lra-smoke"
    words = ["mega/table2", "--smoke", "--out", str(out), "--root", str(ROOT), "--", "--lr", "3"]
    assert printed == f"venv='a b' skip_setup= words=({shlex.join(words)})\n"


@pytest.mark.parametrize(
    ("given", "out"), [([], ["--out", str(ROOT / "outputs" / "lra")]), (["--out", "x"], []), (["--print"], [])]
)
def test_results_lie_in_the_checkout(given: List[str], out: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Unless an option names another folder, or nothing is written."""
    options.main([str(REPOSITORY / "scripts" / "mega_table2_lra.sh"), "lra", "mega/table2", "--skip-setup", *given])
    words = ["mega/table2", *given, *out, "--root", str(ROOT)]
    assert capsys.readouterr().out == f"venv='' skip_setup=yes words=({shlex.join(words)})\n"
