"""A real browser without a screen, where one is installed."""

import os
import shutil
import subprocess
from pathlib import Path
from typing import List

import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "microsoft-edge")


def browser() -> str:
    """The command of a Chromium; skips the test, saying how to have one, where there is none."""
    found = os.environ.get("FAIRSEQ_MEGA_BROWSER") or next(filter(None, map(shutil.which, NAMES)), None)
    if not found:
        pytest.skip(f"no browser: install one of {', '.join(NAMES)}, or name it in FAIRSEQ_MEGA_BROWSER")
    return str(found)


def look_at(page: Path, profile: Path, *options: str) -> str:
    """Open a page in the browser; returns what it prints, which is its document with ``--dump-dom``."""
    quiet = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    offline = ["--host-resolver-rules=MAP * ~NOTFOUND", f"--user-data-dir={profile}"]
    words: List[str] = [browser(), *quiet, *offline, *options, page.resolve().as_uri()]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=True).stdout
