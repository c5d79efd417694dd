"""Fetch files over HTTP, continuing partial downloads, and refuse those that are cut off."""

import http.client
import os
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Optional

from fairseq_mega.lab.prepare.progress import Progress, print_line
from fairseq_mega.lab.runs.files import blocks_of

ATTEMPTS, WAIT = 3, 5.0  # times that a transfer is tried, and the seconds between


class DownloadError(ValueError):
    """A file is missing, damaged or cannot be fetched; the message names both sizes or checksums."""


def fetch(url: str, path: Path, attempts: int = 8, remedy: str = "") -> int:
    """Download ``url`` to ``path`` and return its size in bytes; a ``.partial`` file is continued.

    Raises :class:`DownloadError` with the remedy where all attempts fail, or the size that the server announced is not
    reached; the partial file is kept for the next run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    problem = ""
    for attempt in range(attempts):
        if attempt:
            print_line(f"{path.name}: {problem}; attempt {attempt + 1} of {attempts}")
            time.sleep(WAIT)
        try:
            expected = _transfer(url, partial)
        except urllib.error.HTTPError as error:
            problem = f"HTTP status {error.code} ({error.reason})"
            if error.code < 500 and error.code not in (408, 416, 429):
                break
            continue
        except (OSError, http.client.HTTPException) as error:
            problem = str(getattr(error, "reason", error)) or type(error).__name__
            continue
        found = partial.stat().st_size
        if expected in (None, found):
            os.replace(partial, path)
            return found
        problem = f"expected {expected} bytes, found {found}"
    remedy = remedy or f"Run the same command again to continue, or fetch the file by other means and name it {path}"
    raise DownloadError(f"{url}: {problem}. {remedy}")


def _transfer(url: str, partial: Path) -> Optional[int]:
    """Append the missing bytes of ``url`` to ``partial``; return the size that the whole file should have."""
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        reply = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code == 416:  # the server has nothing beyond our bytes: the file is complete, or another one
            if (error.headers.get("Content-Range") or "").rpartition("/")[2] == str(done):
                return done
            partial.unlink()
        raise
    with reply:
        length = reply.headers.get("Content-Length")
        done = done if reply.status == 206 else 0
        expected = None if length is None else done + int(length)
        progress = Progress(partial.stem, "MB", None if expected is None else expected / 1e6, done / 1e6)
        with open(partial, "ab" if done else "wb") as stream:
            for block in progress.follow(blocks_of(reply), size=lambda block: len(block) / 1e6):
                stream.write(block)
    return expected


def fetch_missing(url: str, path: Path, remedy: str = "", attempts: int = ATTEMPTS, allowed: bool = True) -> None:
    """Download a file unless it is there.

    Raises:
        DownloadError: with the remedy, if all attempts fail, or the download is not allowed.
    """
    if path.exists():
        return
    if not allowed:
        raise DownloadError(f"{path} does not exist and --no-download was passed; fetch it from {url}")
    print_line(f"{path.name}: downloading {url}")
    fetch(url, path, attempts, remedy)
