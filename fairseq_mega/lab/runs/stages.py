"""Stages: each is done once in its folder, and repeated only after an interruption or in another folder."""

import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Callable, Sequence

from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.files import write_text
from fairseq_mega.lab.runs.fingerprints import digest_of_data

STARTED = float(os.environ.get("FAIRSEQ_MEGA_STARTED", time.time()))  # the script's first line sets the start


def print_line(text: str) -> None:
    """Print a line of progress to stderr, with the minutes and seconds since the start."""
    minutes, seconds = divmod(int(time.time() - STARTED), 60)
    print(f"[{minutes:02d}:{seconds:02d}] {text}", file=sys.stderr, flush=True)


def marker_of(folder: Path, name: str) -> Path:
    """Return the file that exists after a stage."""
    return folder / ".done" / name


def stage(folder: Path, name: str, work: Callable[[], object], title: str = "") -> None:
    """Do some work unless it is done; ``folder/.done/name`` contains the time and appears only after all of the work.

    Args:
        title: for the lines of progress (default: the name).
    """
    marker = marker_of(folder, name)
    shown = title or name
    if marker.exists():
        print_line(f"{shown}: done before, skipped (remove {marker} to repeat it)")
        return
    print_line(f"{shown}: begins")
    work()
    write_text(marker, f"{datetime.now(timezone.utc):%Y-%m-%dT%H:%M:%SZ}\n")
    print_line(f"{shown}: done")


def make_of(sources: Sequence[Path], path: Path, work: Callable[[], object]) -> None:
    """Make a file or a folder of files unless it is made of the same ones; no time of a file decides.

    ``path.of`` contains the digest of the sources, which lie in one folder, and appears only after the work.
    """
    mark, found = path.with_name(f"{path.name}.of"), digest_of_data(sources, sources[0].parent)
    if path.exists() and mark.exists() and mark.read_text().strip() == found:
        return
    mark.unlink(missing_ok=True)
    work()
    write_text(mark, f"{found}\n")


def check_settings(folder: Path, settings: Sequence[str], option: str) -> None:
    """Write the settings of the stages in a folder, a line each, or compare them with those it was begun with.

    Args:
        option: of the command line that names the folder.

    Raises:
        StageError: if the folder was begun with other settings.
    """
    kept = folder / "settings"
    if not kept.exists():
        write_text(kept, "".join(f"{line}\n" for line in settings))
    before = kept.read_text(encoding="utf-8").splitlines()
    if before != list(settings):
        changes = [f"< {line}" for line in before if line not in settings]
        shown = "\n".join([*changes, *(f"> {line}" for line in settings if line not in before)])
        raise StageError(
            f"{folder} was begun with other settings or another text:\n{shown}\n"
            f"give the same options, give another {option}, or remove the folder"
        )
