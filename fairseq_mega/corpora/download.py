"""Fetch archives over HTTP, resuming partial downloads, and refuse those that are cut off or altered."""

import hashlib
import http.client
import json
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
import zlib
from pathlib import Path
from typing import Any, Dict, Optional

from fairseq_mega.corpora.unpacking import open_gzip

BLOCK = 1 << 20
REPORT_SECONDS = 15.0
ATTEMPTS = 3  # of fetch_missing: some hosts are gone, trying for long would only delay the message


class DownloadError(ValueError):
    """An archive is missing, damaged or cannot be fetched; the message says what was expected and found."""


def say(message: str) -> None:
    """Print a progress line to standard error."""
    print(message, file=sys.stderr, flush=True)


def fetch(url: str, path: Path, attempts: int = 8, wait: float = 5.0) -> int:
    """Download ``url`` to ``path`` and return its size in bytes; a ``.partial`` file is continued.

    The transfer is tried ``attempts`` times, ``wait`` seconds apart. Raises :class:`DownloadError` when the
    size that the server announced is not reached; the partial file is kept for the next run.
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
            problem = str(getattr(error, "reason", error)) or type(error).__name__
            continue
        found = partial.stat().st_size
        if expected is not None and found != expected:
            problem = f"expected {expected} bytes, found {found}"
            if found > expected:
                partial.unlink()
            continue
        os.replace(partial, path)
        return found
    raise DownloadError(
        f"{url}: {problem}. Run the same command again to continue, or fetch the file by other means, put it into the "
        "archive folder and name that folder with --data-dir"
    )


def _transfer(url: str, partial: Path) -> Optional[int]:
    """Append what is missing of ``url`` to ``partial``; return the size that the whole file should have."""
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        reply = urllib.request.urlopen(request, timeout=60)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        # The server has nothing beyond our bytes: complete if it says so, otherwise start afresh.
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


def _copy(reply: Any, stream: Any, name: str, done: int, expected: Optional[int]) -> None:
    begun = reported = time.monotonic()
    start = done
    while True:
        block = reply.read(BLOCK)
        if not block:
            return
        stream.write(block)
        done += len(block)
        now = time.monotonic()
        if now - reported >= REPORT_SECONDS:
            reported = now
            rate = (done - start) / (now - begun)
            share = f" of {expected / 1e6:.0f} MB, {(expected - done) / rate / 60:.1f} min left" if expected else " MB"
            say(f"{name}: {done / 1e6:.0f}{share}, {rate / 1e6:.1f} MB/s")


def fetch_missing(url: str, path: Path, remedy: str) -> None:
    """Download a file unless it is there. Raises :class:`DownloadError` with the remedy, after few attempts only."""
    if path.exists():
        return
    say(f"{path.name}: downloading {url}")
    try:
        fetch(url, path, attempts=ATTEMPTS)
    except DownloadError as error:
        reason = str(error).partition(". Run ")[0]  # what follows names an option of another command
        raise DownloadError(f"{reason}. {remedy}") from error


def check_digests(path: Path, digests: Dict[str, str], size: Optional[int], remedy: str) -> None:
    """Read a file and raise :class:`DownloadError` unless it has this size and these digests (hexadecimal, by name)."""
    found = path.stat().st_size
    if size is not None and found != size:
        raise DownloadError(f"{path}: expected {size} bytes, found {found}. {remedy}")
    hashes: Dict[str, Any] = {name: hashlib.new(name) for name in digests}
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            for one in hashes.values():
                one.update(block)
    for name, digest in digests.items():
        if hashes[name].hexdigest() != digest:
            raise DownloadError(
                f"{path}: expected {name.upper()} {digest}, found {hashes[name].hexdigest()} ({found} bytes). {remedy}"
            )


def record_of(path: Path, **more: str) -> Dict[str, Any]:
    """Return what SOURCE.json says of a file."""
    return {**more, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        for block in iter(lambda: stream.read(BLOCK), b""):
            digest.update(block)
    return digest.hexdigest()


def check_gzip(path: Path) -> None:
    """Read the gzip file to its end; raises :class:`DownloadError` when it is cut off, damaged or too large."""
    unpacked = 0
    try:
        with open_gzip(path) as stream:
            for block in iter(lambda: stream.read(BLOCK), b""):
                unpacked += len(block)
    except EOFError as error:
        raise DownloadError(
            f"{path} is cut off: expected the end mark of the gzip stream, found the end of the file after "
            f"{path.stat().st_size} bytes; remove it and fetch it again"
        ) from error
    except (OSError, zlib.error) as error:
        raise DownloadError(
            f"{path} is damaged after {unpacked} unpacked bytes: {error}; remove it and fetch it again"
        ) from error
    if unpacked == 0:
        raise DownloadError(f"{path} is an empty archive; remove it and fetch it again")


def obtain(url: str, folder: Path, record_file: Path, allow_download: bool = True) -> Path:
    """Return the path of ``url``'s archive in ``folder``, downloaded if absent, and verified.

    At first sight the archive is read to its end (gzip), and size and SHA-256 are written to
    ``record_file``; afterwards it must still match them. Raises :class:`DownloadError` otherwise.
    """
    name = url.rpartition("/")[2]
    path = folder / name
    records = read_records(record_file)
    if not path.exists():
        if not allow_download:
            raise DownloadError(f"{path} does not exist and --no-download was given; fetch it from {url}")
        if shutil.disk_usage(_existing_parent(folder)).free < 1 << 28:
            raise DownloadError(
                f"less than 256 MiB are free where {folder} lies; free some or choose another --data-dir"
            )
        say(f"{name}: downloading {url}")
        fetch(url, path)
    size = path.stat().st_size
    known = records.get(name)
    if known is not None and known["bytes"] != size:
        raise DownloadError(f"{path}: expected {known['bytes']} bytes, found {size}; remove it and fetch it again")
    if known is None:
        say(f"{name}: {size} bytes, checking")
        check_gzip(path)
    digest = sha256_of(path)
    if known is not None and known["sha256"] != digest:
        raise DownloadError(
            f"{path}: expected SHA-256 {known['sha256']}, found {digest}; remove it and fetch it again, or remove its "
            f"entry from {record_file} if the new file is wanted"
        )
    if known is None:
        records[name] = {"url": url, "bytes": size, "sha256": digest}
        write_records(record_file, records)
    say(f"{name}: {size} bytes, SHA-256 {digest}, {'as recorded' if known else 'recorded'}")
    return path


def _existing_parent(folder: Path) -> Path:
    while not folder.exists():
        folder = folder.parent if folder.parent != folder else Path("/")
    return folder


def read_records(path: Path) -> Dict[str, Dict[str, Any]]:
    """Return the recorded sizes and checksums, ``{name: {"url", "bytes", "sha256"}}``; none yet gives ``{}``."""
    if not path.exists():
        return {}
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
        if all({"bytes", "sha256"} <= set(entry) for entry in records.values()):
            return records
        problem = "an entry lacks bytes or sha256"
    except (ValueError, AttributeError, TypeError) as error:
        problem = str(error)
    raise DownloadError(f"{path} is no list of checksums ({problem}); remove it to record them anew")


def write_records(path: Path, records: Dict[str, Dict[str, Any]]) -> None:
    """Write the checksums to ``path``; the file appears whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps(records, indent=2) + "\n", encoding="utf-8")
    os.replace(temporary, path)
