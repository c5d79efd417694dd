"""Stages: each is done once in its folder, and again only if it was cut short or its folder is another one."""

import sys
import time
from pathlib import Path
from typing import Callable

STARTED = time.monotonic()


def say(text: str) -> None:
    """Print a line of progress to stderr, with the minutes and seconds since the start."""
    elapsed = int(time.monotonic() - STARTED)
    print(f"[{elapsed // 60:02d}:{elapsed % 60:02d}] {text}", file=sys.stderr, flush=True)


def stage(folder: Path, name: str, work: Callable[[], None], title: str = "") -> None:
    """Do some work unless it is done; ``folder/.done/name`` says so, and appears only after all of it.

    Args:
        title: for the lines of progress; the name where it is left out.
    """
    marker = folder / ".done" / name
    shown = title or name
    if marker.exists():
        say(f"{shown}: done before, skipped (remove {marker} to repeat it)")
        return
    say(f"{shown}: begins")
    work()
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    say(f"{shown}: done")
