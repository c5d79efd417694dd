"""Run commands with their output in a log and lines of progress; a command ends with the process that starts it."""

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional, Sequence, TextIO, cast

from fairseq_mega.cli.progress import Progress, copy_with_progress

PYTHON = [sys.executable, "-m"]
PACKAGE_PARENT = Path(__file__).resolve().parents[3]
# Threads wait for each other some ten microseconds awake, then asleep. Threads that never sleep occupy the cores of
# other jobs, and a training beside another job needs many times as long. If threads sleep at once, an idle machine
# loses a fifth of its speed.
USUAL = {"PYTHONWARNINGS": "ignore", "GOMP_SPINCOUNT": "3000"}
EVERY = 20.0  # seconds between lines of progress
Execute = Callable[..., None]  # runs a command, see :func:`execute`


class StageError(RuntimeError):
    """A stage failed; the message is for the user, and empty if a command has printed it."""


class CommandError(StageError):
    """A command failed; the message ends with its last lines."""

    def __init__(self, words: Sequence[str], status: int, log: Path) -> None:
        title = " ".join(words[2:4]) if list(words[:2]) == PYTHON else Path(words[0]).name
        tail = "".join(f"  {line}\n" for line in last_lines(log))
        super().__init__(
            f"{title} {_end(status)}; the end of {log}:\n{tail}Run the same command again to continue from here"
        )


def _end(status: int) -> str:
    """Return the end of a command in words: its status, or the signal that killed it."""
    if status >= 0:
        return f"ended with status {status}"
    name = {number.value: number.name for number in signal.Signals}.get(-status, f"signal {-status}")
    advice = ", as a system without free memory does (smaller batches need less)" if name == "SIGKILL" else ""
    return f"was killed by {name}{advice}"


def environment(more: Dict[str, str]) -> Dict[str, str]:
    """Return the environment of a command: any folder finds the package, warnings are off, cores are shared."""
    path = os.pathsep.join([str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**USUAL, **os.environ, "PYTHONPATH": path, **more}


def execute(
    words: Sequence[str],
    log: Path,
    variables: Dict[str, str],
    progress: Optional[Progress] = None,
    output: Optional[Path] = None,
) -> None:
    """Run a command in the usual :func:`environment` and add its output to a log; see :func:`run_command`.

    Args:
        variables: of the environment, beside the usual ones.
    """
    run_command(words, log, environment(variables), progress, output)


def run_command(
    words: Sequence[str],
    log: Path,
    variables: Optional[Mapping[str, str]] = None,
    progress: Optional[Progress] = None,
    output: Optional[Path] = None,
    own_group: bool = False,
    folder: Optional[Path] = None,
) -> None:
    """Run a command without input, and add its output to a log. On Linux the command ends if this process is killed.

    Args:
        words: of the command line.
        log: file that the output is added to.
        variables: the whole environment (default: this process's).
        progress: turns lines of the output into lines on stderr.
        output: separate file for the standard output; the file appears only when it is complete.
        own_group: at an interrupt, also end the processes that the command has started.
        folder: folder to run in (default: this process's).

    Raises:
        CommandError: if the command fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    target = log if output is None else output.with_name(output.name + ".partial")
    if output is not None:
        target.unlink(missing_ok=True)  # half of an interrupted line must not be counted
    with log.open("a", encoding="utf-8") as errors, target.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            list(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if output is None else errors,
            env=variables,
            cwd=folder,
            encoding="utf-8",
            errors="replace",
            start_new_session=own_group,
            preexec_fn=partial(_end_with, os.getpid()) if sys.platform == "linux" else None,
        )
        try:
            copy_with_progress(cast(TextIO, process.stdout), file, progress or Progress(), EVERY, sys.stderr)
            status = process.wait()
        except BaseException:  # an interrupt, too: no file is left behind
            with suppress(OSError):
                if own_group:
                    os.killpg(process.pid, signal.SIGTERM)
                else:
                    process.terminate()
            process.wait()
            raise
    if status != 0:
        raise CommandError(words, status, log)
    if output is not None:
        target.replace(output)


def _end_with(starter: int) -> None:
    """Make this process end when the process that started it is killed (Linux)."""
    set_signal_of_parents_death = 1  # PR_SET_PDEATHSIG
    ctypes.CDLL(None).prctl(set_signal_of_parents_death, int(signal.SIGTERM), 0, 0, 0)
    if os.getppid() != starter:  # the parent was killed before
        os.kill(os.getpid(), signal.SIGTERM)


def last_lines(log: Path, count: int = 20) -> List[str]:
    """Return the last lines of a log."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
