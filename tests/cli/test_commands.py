"""Parts that the commands share."""

import os
import subprocess
import sys
from typing import Any, List

import pytest

from tests.support.helpers import REPOSITORY

MUCH = "from fairseq_mega.cli.commands import exit_status; exit(exit_status('x', lambda: print('line\\n' * 100000)))"
LITTLE = "from fairseq_mega.cli.commands import exit_status; exit(exit_status('x', lambda: print('line')))"
WARNS = (
    "import warnings; from fairseq_mega.cli.commands import exit_status; "
    "exit(exit_status('x', lambda: [warnings.warn_explicit('old', UserWarning, f'{name}.py', 1, module=name) "
    "for name in ('hydra.core.config', 'fairseq.utils', 'mine')]))"
)


def test_a_command_prints_no_deprecations_of_libraries() -> None:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}  # which the user may set
    words = [sys.executable, "-c", WARNS]
    done = subprocess.run(words, cwd=REPOSITORY, env=plain, text=True, capture_output=True, check=True)
    assert done.stderr.splitlines() == ["mine.py:1: UserWarning: old"]


@pytest.mark.parametrize("words", [["-c", MUCH], ["-c", LITTLE]])
def test_a_reader_that_goes_ends_a_command_in_silence(words: List[str]) -> None:
    """A command whose reader goes, as ``| head`` does, ends without a message, in mid-output or at its end."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([sys.executable, *words], cwd=REPOSITORY, env=buffered, text=True, **pipes) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        said = run.stderr.read()
        assert (run.wait(), said) == (1, "")
