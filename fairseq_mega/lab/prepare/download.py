"""Fetch files over HTTP, also after an interruption; compare their checksums, and record them for card.json."""

import hashlib
import http.client
import os
import urllib.request
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.runs.files import blocks_of

Records = Dict[str, Dict[str, Any]]  # by file name: bytes, sha256, and for instance url or version


class DownloadError(ValueError):
    """A file is missing, damaged or cannot be fetched; the message names both sizes or checksums."""


def fetch(url: str, path: Path, remedy: str = "") -> None:
    """Download ``url`` to ``path``; a ``.partial`` file of an earlier call is continued.

    Raises :class:`DownloadError` with the remedy where this fails, or the size that the server announced is not
    reached; the partial file is kept for the next call.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    done = partial.stat().st_size if partial.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={done}-"} if done else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            done = done if reply.status == 206 else 0
            length = reply.headers.get("Content-Length")
            expected = None if length is None else done + int(length)
            with open(partial, "ab" if done else "wb") as stream:
                for block in follow(blocks_of(reply), path.name, "B", expected, done, len):
                    stream.write(block)
        if expected not in (None, partial.stat().st_size):
            raise OSError(f"expected {expected} bytes, found {partial.stat().st_size}")
    except (OSError, http.client.HTTPException) as error:
        if getattr(error, "code", None) == 416:  # the server has nothing beyond these bytes: of another file, perhaps
            partial.unlink()
        remedy = remedy or f"Run the same command again to continue, or fetch the file and name it {path}"
        raise DownloadError(f"{url}: {error}. {remedy}") from error
    os.replace(partial, path)


def fetch_missing(url: str, path: Path, remedy: str = "", allowed: bool = True) -> None:
    """Download a file unless it is there; raise :class:`DownloadError` if this fails, or is not allowed."""
    if path.exists():
        return
    if not allowed:
        raise DownloadError(f"{path} does not exist and --no-download was passed; fetch it from {url}")
    print_line(f"{path.name}: downloading {url}")
    fetch(url, path, remedy)


def digest_of(path: Path, name: str) -> str:
    """Return the digest of a file, hexadecimal; ``name`` is that of hashlib."""
    with open(path, "rb") as stream:
        return hashlib.file_digest(stream, name).hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    return digest_of(path, "sha256")


def check_digests(path: Path, digests: Dict[str, str], size: Optional[int], remedy: str) -> None:
    """Raise :class:`DownloadError` unless a file has this size and these digests (hexadecimal, by name)."""
    bytes_found = path.stat().st_size
    if size not in (None, bytes_found):
        raise DownloadError(f"{path}: expected {size} bytes, found {bytes_found}. {remedy}")
    for name, digest in digests.items():
        if (found := digest_of(path, name)) != digest:
            problem = f"expected {name.upper()} {digest}, found {found} ({bytes_found} bytes)"
            raise DownloadError(f"{path}: {problem}. {remedy}")


def record_of(path: Path, **more: str) -> Dict[str, Any]:
    """Return the entry of a file in card.json."""
    return {**more, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def records_of(paths: Iterable[Path]) -> Records:
    """Return the entries of files in card.json: by name, and by path those that share one."""
    files = dict.fromkeys(paths)
    names = Counter(path.name for path in files)
    return {path.name if names[path.name] == 1 else str(path): record_of(path) for path in files}
