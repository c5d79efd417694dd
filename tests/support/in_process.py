"""Commands run in this process, those that they start too: a fresh one would take seconds to import fairseq."""

import contextlib
import io
import os
import re
import runpy
import shlex
import signal
import sys
from pathlib import Path
from typing import Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence
from unittest import mock

import pytest

from fairseq_mega.cli import console
from fairseq_mega.cli.progress import Progress, copy_with_progress
from fairseq_mega.lab.prepare import binarised
from fairseq_mega.lab.reproduce import command as reproducing
from fairseq_mega.lab.runs import commands
from fairseq_mega.lab.runs.commands import CommandError
from tests.support.helpers import REPOSITORY, captured_output, forget_earlier_runs


class Done(NamedTuple):
    """Status and output of a command that has ended."""

    returncode: int
    stdout: str
    stderr: str


def run_module(words: Sequence[str]) -> int:
    """Run ``python -m MODULE ...``, ``python -c TEXT ...``, fairseq-preprocess or a command of this package."""
    saved, status = sys.argv, 0
    name, *arguments = words
    forget_earlier_runs()
    try:
        if name.startswith("fairseq-mega-"):
            return console.run(name[len("fairseq-mega-") :], arguments)
        how, what, *arguments = (
            ["-m", "fairseq_cli.preprocess", *arguments] if name == "fairseq-preprocess" else words[1:]
        )
        sys.argv = [what, *arguments]
        if how == "-m":
            runpy.run_module(what, run_name="__main__", alter_sys=True)
        else:
            exec(what, {"__name__": "__main__"})
    except SystemExit as end:
        status = int(end.code or 0)
    finally:
        sys.argv = saved
        forget_earlier_runs()
    return status


def run_command(
    words: Sequence[str],
    log: Path,
    variables: Optional[Mapping[str, str]] = None,
    progress: Optional[Progress] = None,
    output: Optional[Path] = None,
    own_group: bool = False,
    folder: Optional[Path] = None,
) -> None:
    """Run as :func:`fairseq_mega.lab.runs.commands.run_command` in this process; an exception is status 1."""
    with captured_output() as buffer, contextlib.redirect_stdout(io.StringIO() if output else buffer) as printed:
        before = os.getcwd()
        try:
            os.chdir(folder or before)
            status = run_module(words)
        except Exception as error:
            print(error)
            status = 1
        finally:
            os.chdir(before)
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        text, copied = (buffer.getvalue(), file) if output is None else (printed.getvalue(), io.StringIO())
        file.write("" if output is None else buffer.getvalue())
        copy_with_progress(io.StringIO(text), copied, progress or Progress(), 0.0, sys.stderr)
    if status:
        raise CommandError(words, status, log)
    if output is not None:
        output.write_text(text, encoding="utf-8")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the laboratory's commands start no processes."""
    for module in (commands, binarised):
        monkeypatch.setattr(module, "run_command", run_command)


def call(
    main: Callable[[List[str]], Optional[int]], *arguments: object, environment: Optional[Dict[str, str]] = None
) -> Done:
    """Call a command as its process would; its environment and its handler of signals end with it."""
    output, errors = io.StringIO(), io.StringIO()
    handler = signal.getsignal(signal.SIGTERM)
    surroundings = mock.patch.dict(os.environ, environment or {})
    with surroundings, contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            status = main([str(argument) for argument in arguments]) or 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
            errors.write(f"{end.code}\n" if isinstance(end.code, str) else "")
        finally:
            signal.signal(signal.SIGTERM, handler)
    return Done(status, output.getvalue(), errors.getvalue())


def reproduce(script: str, *options: object) -> Done:
    """Run the recipes of scripts/mega_*.sh in this process, with options of fairseq-mega-reproduce."""
    return call(reproducing.main, *words_of(script)[1:], "--root", REPOSITORY, *options)


def words_of(script: str) -> List[str]:
    """Return the words that a script of recipes gives to its function ``reproduce``, before those of its user."""
    text = (REPOSITORY / "scripts" / script).read_text(encoding="utf-8")
    (words,) = re.findall(r'^(?:extras=\w+ )?reproduce (.*) "\$@"$', text, re.MULTILINE)
    return shlex.split(words)
