"""A work folder: stages that are done once, the settings that they belong to, and the output of every command."""

import difflib
import os
import subprocess
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import IO, Callable, Iterable, List, NoReturn, Optional, Sequence

from fairseq_mega.corpora.files import write_text
from fairseq_mega.reports.log_progress import Progress, copy_with_progress

SHOWN_SECONDS = 20.0  # between two lines of progress
LAST_LINES = 20  # of a log, shown where its command fails


class Failed(RuntimeError):
    """A stage that cannot be done; the message is for the user."""


class Work:
    """A folder with what was made, ``logs``, ``.done`` and ``settings``.

    Args:
        folder: made if it is not there.
        settings: that the stages done in it belong to, a line each.

    Raises:
        Failed: where it was begun with other settings, or cannot be made.
    """

    def __init__(self, folder: Path, settings: Sequence[str]) -> None:
        self.folder = folder
        self._started = float(os.environ.get("FAIRSEQ_MEGA_STARTED", time.time()))
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise Failed(f"--work-dir {folder} cannot be made ({error}): give a folder you may write to") from error
        kept = folder / "settings"
        if not kept.exists():
            write_text(kept, "".join(f"{line}\n" for line in settings))
        before = kept.read_text(encoding="utf-8").splitlines()
        if before != list(settings):
            changes = [line for line in difflib.ndiff(before, settings) if line[:1] in "-+"]
            shown = "\n".join(("< " if line[0] == "-" else "> ") + line[2:] for line in changes)
            raise Failed(
                f"{folder} was begun with other settings or another text:\n{shown}\n"
                f"give the same options, another --work-dir, or remove that folder"
            )

    def seconds(self) -> float:
        """The time since the quick start was called."""
        return time.time() - self._started

    def log(self, message: str) -> None:
        """Print a line with the time since the start."""
        minutes, seconds = divmod(int(self.seconds()), 60)
        print(f"[{minutes:02d}:{seconds:02d}] {message}", file=sys.stderr, flush=True)

    def stage(self, name: str, make: Callable[[], None]) -> None:
        """Do something, unless it was done before."""
        marker = self.folder / ".done" / name
        if marker.exists():
            self.log(f"{name}: done before, skipped (remove {marker} to repeat it)")
            return
        self.log(f"{name}: begins")
        make()
        marker.parent.mkdir(exist_ok=True)
        write_text(marker, f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}\n")
        self.log(f"{name}: done")

    def log_file(self, name: str) -> Path:
        """Where the output of a command goes."""
        return self.folder / "logs" / f"{name}.log"

    def run(self, name: str, command: Sequence[object], progress: Optional[Progress] = None) -> None:
        """Run a command, whose output goes to its log; with ``progress`` a line now and then tells how far it is.

        Raises:
            Failed: where it fails, after the last lines of its log.
        """
        with open(self.log_file(name), "a" if progress else "w", encoding="utf-8") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
            )
            assert process.stdout is not None
            try:
                self._copy(process.stdout, log, progress)
            except BaseException:  # an interrupt: nobody else would end it
                process.terminate()
                raise
            finally:
                status = process.wait()
        if status != 0:
            self.fail(name, Path(str(command[0])).name)

    def _copy(self, lines: IO[str], log: IO[str], progress: Optional[Progress]) -> None:
        if progress is None:
            log.writelines(lines)
        else:
            copy_with_progress(lines, log, progress, SHOWN_SECONDS, sys.stderr)

    def fail(self, name: str, what: str) -> NoReturn:
        """Raise Failed after the last lines of a log."""
        file = self.log_file(name)
        last = file.read_text(encoding="utf-8", errors="replace").splitlines()[-LAST_LINES:]
        print(f"--- the last lines of {file}", *last, "---", sep="\n", file=sys.stderr)
        raise Failed(
            f"{what} failed; its whole output is in {file}. Start the same command again to go on from here"
        )


def module(name: str, *arguments: object) -> List[object]:
    """A command that runs a module of this Python."""
    return [sys.executable, "-m", name, *arguments]


def run_shown(command: Iterable[object]) -> None:
    """Run a command whose output the user sees on stderr; raises Failed, without more words, where it fails."""
    if subprocess.run([str(part) for part in command], stdout=sys.stderr, stdin=subprocess.DEVNULL).returncode:
        raise Failed("")
