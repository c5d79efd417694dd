"""Checksums of files: compared with the published ones, and recorded in card.json."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.runs.files import blocks_of

Records = Dict[str, Dict[str, Any]]  # by file name: bytes, sha256, and for instance url or version


def digest_of(path: Path, name: str) -> str:
    """Return the digest of a file, hexadecimal; ``name`` is that of hashlib."""
    found = hashlib.new(name)
    with open(path, "rb") as stream:
        for block in blocks_of(stream):
            found.update(block)
    return found.hexdigest()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    return digest_of(path, "sha256")


def check_digests(path: Path, digests: Dict[str, str], size: Optional[int], remedy: str) -> None:
    """Raise :class:`DownloadError` unless a file has this size and these digests (hexadecimal, by name)."""
    bytes_found = path.stat().st_size
    if size not in (None, bytes_found):
        raise DownloadError(f"{path}: expected {size} bytes, found {bytes_found}. {remedy}")
    for name, digest in digests.items():
        found = digest_of(path, name)
        if found != digest:
            raise DownloadError(
                f"{path}: expected {name.upper()} {digest}, found {found} ({bytes_found} bytes). {remedy}"
            )


def record_of(path: Path, **more: str) -> Dict[str, Any]:
    """Return the entry of a file in card.json."""
    return {**more, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def records_of(paths: Iterable[Path]) -> Records:
    """Return the entries of files in card.json: by name, and by path those that share one."""
    files = dict.fromkeys(paths)
    names = Counter(path.name for path in files)
    return {path.name if names[path.name] == 1 else str(path): record_of(path) for path in files}
