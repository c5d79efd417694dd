"""A work folder: stages that are done once, and their settings."""

import difflib
from pathlib import Path
from typing import Callable, Sequence

from fairseq_mega.lab.runs.files import write_text

from . import stages
from .commands import StageError


class Work:
    """A folder with results of stages, ``.done`` and ``settings``.

    Args:
        folder: created if it is missing.
        settings: of the stages done in the folder, a line each.
        option: of the command line that names the folder.

    Raises:
        StageError: if the folder was begun with other settings, or cannot be created.
    """

    def __init__(self, folder: Path, settings: Sequence[str], option: str) -> None:
        self.folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
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
                f"give the same options, give another {option}, or remove the folder"
            )

    def stage(self, name: str, make: Callable[[], None]) -> None:
        """Run a stage, unless it was done before."""
        stages.stage(self.folder, name, make)
