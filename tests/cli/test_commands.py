"""Parts that the commands share."""

import os
import re
import runpy
import subprocess
import sys
from typing import Any, List

import pytest

from tests.support.helpers import REPOSITORY

MUCH = "from fairseq_mega.cli.commands import exit_status; exit(exit_status('x', lambda: print('line\\n' * 100000)))"
WARNS = (
    "import warnings; from fairseq_mega.cli.commands import exit_status; "
    "exit(exit_status('x', lambda: [warnings.warn_explicit('old', UserWarning, f'{name}.py', 1, module=name) "
    "for name in ('hydra.core.config', 'fairseq.utils', 'mine')]))"
)
HELP = "import logging; logging.disable(); from fairseq_mega.cli import console; exit(console.run('train', ['--help-all']))"
CONVERT = (
    "from fairseq_mega.convert import command; command.convert = lambda given: print('line\\n' * 100000); "
    "exit(command.main(['--input', 'README.md', '--output', 'none.pt']))"
)
LITTLE = "from fairseq_mega.cli import commands; print('line')"


def test_a_command_prints_no_deprecations_of_libraries() -> None:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONWARNINGS"}  # which the user may set
    words = [sys.executable, "-c", WARNS]
    done = subprocess.run(words, cwd=REPOSITORY, env=plain, text=True, capture_output=True, check=True)
    assert done.stderr.splitlines() == ["mine.py:1: UserWarning: old"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["-c", MUCH], 1),
        (["-u", "-c", MUCH], 1),
        (["-c", LITTLE], 0),
        (["-m", "fairseq_mega.lab.reproduce.command", "--list"], 1),
        (["-m", "fairseq_mega.lab.report", "--help"], 0),
        (["-c", HELP], 1),
        (["-c", CONVERT], 1),
    ],
)
def test_a_reader_that_goes_ends_a_command_in_silence(words: List[str], status: int) -> None:
    """A command whose reader goes, as ``| head`` does, ends without a message, in mid-output or before the end."""
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen([sys.executable, *words], cwd=REPOSITORY, env=buffered, text=True, **pipes) as run:
        assert run.stdout is not None and run.stderr is not None
        run.stdout.close()
        said = run.stderr.read()
        assert (run.wait(), said) == (status, "")


LOGGED = """
import logging, sys
from fairseq_mega.cli.commands import exit_status, logged_output
def run():
    with logged_output():
        logging.basicConfig(stream=sys.stdout)
        logging.warning("the result")
exit(exit_status("x", run))
"""


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.parametrize(
    "words",
    [
        ["-c", LOGGED],
        ["-c", LITTLE],
        ["-c", f"{LITTLE}; exit(0)"],
        ["-m", "fairseq_mega.lab.report", "--help"],
        ["-m", "fairseq_mega.lab.reproduce.command", "--list"],
    ],
)
def test_an_output_that_cannot_be_written_is_an_error(words: List[str]) -> None:
    """A result that is lost on a full disk is no result."""
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, *words], cwd=REPOSITORY, env=buffered, text=True, stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert re.search(r"error: .*No space left on device", done.stderr)


def test_an_error_of_another_pipe_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    from fairseq_mega.cli.commands import exit_status

    def fail() -> None:
        raise BrokenPipeError("of a process")

    assert exit_status("x", fail) == 1 and capsys.readouterr().err == "x: error: of a process\n"


def test_the_harness_needs_lm_eval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    with pytest.raises(
        SystemExit, match=r"error: lm-evaluation-harness is missing: pip install 'fairseq_mega\[lm-eval"
    ):
        runpy.run_module("fairseq_mega.lab.evaluate.lm_eval_command", run_name="__main__")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii", "utf-8"])
def test_output_is_utf8_in_every_locale(encoding: str) -> None:
    """Pieces of words begin with a character that few encodings have."""
    code = "import sys, fairseq_mega.cli.commands; print('\\u2581road'); print('\\u5305', file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "\u2581road\n".encode(), "\u5305\n".encode())
