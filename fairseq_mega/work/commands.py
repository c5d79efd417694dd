"""Running the commands of a stage: their output in a log, a line of progress now and then, an end with the runner's."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional, Protocol, Sequence, TextIO, cast

from fairseq_mega.reports.log_progress import Progress, copy_with_progress

PYTHON = [sys.executable, "-m"]
PACKAGE_PARENT = Path(__file__).resolve().parents[2]
QUIET = {"PYTHONWARNINGS": "ignore", "OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "0"}
EVERY = 20.0  # seconds between lines of progress


class Execute(Protocol):
    """Runs a command; see :func:`execute`."""

    def __call__(
        self,
        words: Sequence[str],
        log: Path,
        variables: Dict[str, str],
        progress: Optional[Progress] = None,
        output: Optional[Path] = None,
    ) -> None: ...


class StageError(RuntimeError):
    """A command that failed; the message says where its output is."""


def environment(more: Dict[str, str]) -> Dict[str, str]:
    """Of a command: this package is found from any folder, and nothing warns about other packages' insides."""
    path = os.pathsep.join([str(PACKAGE_PARENT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**QUIET, **os.environ, "PYTHONPATH": path, **more}


def execute(
    words: Sequence[str],
    log: Path,
    variables: Dict[str, str],
    progress: Optional[Progress] = None,
    output: Optional[Path] = None,
) -> None:
    """Run a command and add its output to a log.

    Args:
        words: of the command line.
        log: to be added to.
        variables: of the environment, beside the usual ones.
        progress: turns lines of the output into lines on stderr.
        output: file for the standard output alone, whose lines must stay whole; it appears only when all is there.

    Raises:
        StageError: with the last lines of the output, if it fails.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    target = log if output is None else output.with_name(output.name + ".partial")
    if output is not None:
        target.unlink(missing_ok=True)  # half of an interrupted one must not be counted
    with log.open("a", encoding="utf-8") as errors, target.open("a", encoding="utf-8") as file:
        process = subprocess.Popen(
            list(words),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if output is None else errors,
            env=environment(variables),
            text=True,
            errors="replace",
        )
        try:
            copy_with_progress(cast(TextIO, process.stdout), file, progress or Progress(), EVERY, sys.stderr)
            status = process.wait()
        except BaseException:  # an interrupt, too: nothing is left behind
            with suppress(OSError):
                process.terminate()
            process.wait()
            raise
    if status != 0:
        tail = "".join(f"  {line}\n" for line in last_lines(log))
        raise StageError(f"{' '.join(words[2:4])} ended with status {status}; the end of {log}:\n{tail}")
    if output is not None:
        target.replace(output)


def last_lines(log: Path, count: int = 20) -> List[str]:
    """The last lines of a log."""
    return log.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]
