"""Fetch files over HTTP, continuing partial downloads, and refuse those that are cut off."""

import http.client
import os
import shutil
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import IO, Optional

from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.runs.files import blocks_of, existing_parent

ATTEMPTS = 3  # of fetch_missing: some hosts no longer exist, and more attempts would only delay the message
LEAST_FREE = 1 << 28  # bytes on the disk of a download


class DownloadError(ValueError):
    """A file is missing, damaged or cannot be fetched; the message names both sizes or checksums."""


def fetch(url: str, path: Path, attempts: int = 8, wait: float = 5.0, remedy: str = "") -> int:
    """Download ``url`` to ``path`` and return its size in bytes; a ``.partial`` file is continued.

    The transfer is tried ``attempts`` times, ``wait`` seconds apart; twice where no server answers. Raises
    :class:`DownloadError` with the remedy when the size that the server announced is not reached; the partial file is
    kept for the next run.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    problem = "no attempt was made"
    for attempt in range(attempts):
        if attempt:
            say(f"{path.name}: {problem}; attempt {attempt + 1} of {attempts}")
            time.sleep(wait)
        try:
            expected = _transfer(url, partial)
        except urllib.error.HTTPError as error:
            if error.code < 500 and error.code not in (408, 416, 429):
                problem = f"HTTP status {error.code} ({error.reason})"
                break
            problem = f"HTTP status {error.code}"
            continue
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", error)
            problem = str(reason) or type(error).__name__
            if isinstance(reason, ConnectionRefusedError):
                problem = "the connection was refused: no server answers at this address"
                if attempt:
                    break
            continue
        found = partial.stat().st_size
        if expected is not None and found != expected:
            problem = f"expected {expected} bytes, found {found}"
            if found > expected:
                partial.unlink()
            continue
        os.replace(partial, path)
        return found
    remedy = remedy or f"Run the same command again to continue, or fetch the file by other means and name it {path}"
    raise DownloadError(f"{url}: {problem}. {remedy}")


def _transfer(url: str, partial: Path) -> Optional[int]:
    """Append the missing bytes of ``url`` to ``partial``; return the size that the whole file should have."""
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        reply = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # The server has nothing beyond our bytes: the file is complete if the server reports its size, otherwise start
        # afresh.
        total = (error.headers.get("Content-Range") or "").rpartition("/")[2]
        if total == str(done):
            return done
        partial.unlink()
        raise
    with reply:
        length = reply.headers.get("Content-Length")
        if reply.status != 206:
            done = 0
        expected = done + int(length) if length is not None else None
        with open(partial, "ab" if done else "wb") as stream:
            _copy(reply, stream, partial.stem, done, expected)
    return expected


def _copy(reply: IO[bytes], stream: IO[bytes], name: str, done: int, expected: Optional[int]) -> None:
    progress = Progress(name, "MB", None if expected is None else expected / 1e6, done / 1e6)
    for block in progress.follow(blocks_of(reply), size=lambda block: len(block) / 1e6):
        stream.write(block)


def fetch_missing(url: str, path: Path, remedy: str = "", attempts: int = ATTEMPTS, allowed: bool = True) -> None:
    """Download a file unless it is there.

    Raises:
        DownloadError: with the remedy, if all attempts fail, the download is not allowed, or the disk has hardly any
            room for it.
    """
    if path.exists():
        return
    if not allowed:
        raise DownloadError(f"{path} does not exist and --no-download was given; fetch it from {url}")
    if shutil.disk_usage(existing_parent(path.parent)).free < LEAST_FREE:
        raise DownloadError(f"less than 256 MiB are free where {path.parent} lies; free some or choose another folder")
    say(f"{path.name}: downloading {url}")
    fetch(url, path, attempts=attempts, remedy=remedy)
