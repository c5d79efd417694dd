"""The runner's commands run in this process: a fresh one would take seconds to import fairseq."""

import contextlib
import io
import runpy
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.recipes import runner
from fairseq_mega.work.commands import StageError
from tests.support.helpers import captured_output, forget_earlier_runs


def execute(
    words: Sequence[str], log: Path, variables: Dict[str, str], progress: Any = None, output: Optional[Path] = None
) -> None:
    """As :func:`fairseq_mega.work.commands.execute`, for ``python -m MODULE ...`` and ``python -c TEXT ...``."""
    _, how, what, *arguments = words
    saved, status = sys.argv, 0
    forget_earlier_runs()
    with captured_output() as buffer, contextlib.redirect_stdout(io.StringIO() if output else buffer) as printed:
        sys.argv = [what, *arguments]
        try:
            if how == "-m":
                runpy.run_module(what, run_name="__main__", alter_sys=True)
            else:
                exec(what, {"__name__": "__main__"})
        except SystemExit as end:
            status = int(end.code or 0)
        finally:
            sys.argv = saved
            forget_earlier_runs()
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("a", encoding="utf-8") as file:
        file.write(buffer.getvalue())
    if status:
        raise StageError(f"{what} ended with status {status}: {buffer.getvalue()[-2000:]}")
    if output is not None:
        output.write_text(printed.getvalue(), encoding="utf-8")


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the runner start no processes."""
    for function in (runner.prepare, runner.perform_all):
        defaults = tuple(execute if value is runner.execute else value for value in function.__defaults__ or ())
        monkeypatch.setattr(function, "__defaults__", defaults)
