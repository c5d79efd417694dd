"""A work folder: stages that are done once, the settings that they belong to, and the output of every command."""

import difflib
import sys
from pathlib import Path
from typing import Callable, Optional, Sequence

from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.log_progress import Progress

from . import stages
from .commands import CommandError, StageError, environment, last_lines, run_command


class Work:
    """A folder with what was made, ``logs``, ``.done`` and ``settings``.

    Args:
        folder: made if it is not there.
        settings: that the stages done in it belong to, a line each.
        option: that names the folder on the command line.

    Raises:
        StageError: where it was begun with other settings, or cannot be made.
    """

    def __init__(self, folder: Path, settings: Sequence[str], option: str) -> None:
        self.folder = folder
        try:
            (folder / "logs").mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StageError(f"{option} {folder} cannot be made ({error}): give a folder you may write to") from error
        kept = folder / "settings"
        if not kept.exists():
            write_text(kept, "".join(f"{line}\n" for line in settings))
        before = kept.read_text(encoding="utf-8").splitlines()
        if before != list(settings):
            changes = [line for line in difflib.ndiff(before, settings) if line[:1] in "-+"]
            shown = "\n".join(("< " if line[0] == "-" else "> ") + line[2:] for line in changes)
            raise StageError(
                f"{folder} was begun with other settings or another text:\n{shown}\n"
                f"give the same options, another {option}, or remove that folder"
            )

    def stage(self, name: str, make: Callable[[], None]) -> None:
        """Do something, unless it was done before."""
        stages.stage(self.folder, name, make)

    def log_file(self, name: str) -> Path:
        """Where the output of a command goes."""
        return self.folder / "logs" / f"{name}.log"

    def run(
        self, name: str, command: Sequence[object], progress: Optional[Progress] = None, own_group: bool = False
    ) -> None:
        """Run a command, whose output goes to its log; with ``progress`` a line now and then tells how far it is.

        The log of a command with progress, which goes on where it was stopped, is added to; another's begins anew.

        Raises:
            StageError: where it fails, after the last lines of its log.
        """
        words, log = [str(part) for part in command], self.log_file(name)
        if progress is None:
            log.unlink(missing_ok=True)
        try:
            run_command(words, log, environment({}), progress, own_group=own_group)
        except CommandError as error:
            print(f"--- the last lines of {log}", *last_lines(log), "---", sep="\n", file=sys.stderr)
            raise StageError(
                f"{Path(words[0]).name} failed; its whole output is in {log}. Start the same command again to go on "
                "from here"
            ) from error
