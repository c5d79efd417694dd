"""Checksums of files: compared with the published ones, and recorded in card.json."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any, Dict, Iterable, Optional

from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.runs.files import blocks_of

Records = Dict[str, Dict[str, Any]]  # by file name: bytes, sha256, and for instance url or version


def digests_of(path: Path, *names: str) -> Dict[str, str]:
    """Return the digests of a file as hexadecimal digits, by the name that hashlib knows."""
    hashes: Dict[str, Any] = {name: hashlib.new(name) for name in names}
    with open(path, "rb") as stream:
        for block in blocks_of(stream):
            for one in hashes.values():
                one.update(block)
    return {name: one.hexdigest() for name, one in hashes.items()}


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    return digests_of(path, "sha256")["sha256"]


def check_digests(path: Path, digests: Dict[str, str], size: Optional[int], remedy: str) -> None:
    """Raise :class:`DownloadError` unless a file has this size and these digests (hexadecimal, by name)."""
    bytes_found = path.stat().st_size
    if size is not None and bytes_found != size:
        raise DownloadError(f"{path}: expected {size} bytes, found {bytes_found}. {remedy}")
    found = digests_of(path, *digests)
    for name, digest in digests.items():
        if found[name] != digest:
            raise DownloadError(
                f"{path}: expected {name.upper()} {digest}, found {found[name]} ({bytes_found} bytes). {remedy}"
            )


def record_of(path: Path, **more: str) -> Dict[str, Any]:
    """Return the entry of a file in card.json."""
    return {**more, "bytes": path.stat().st_size, "sha256": sha256_of(path)}


def records_of(paths: Iterable[Path]) -> Records:
    """Return the entries of files in card.json: by name, and by path those that share one."""
    files = dict.fromkeys(paths)
    names = Counter(path.name for path in files)
    return {path.name if names[path.name] == 1 else str(path): record_of(path) for path in files}
