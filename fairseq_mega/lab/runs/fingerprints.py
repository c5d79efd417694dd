"""Short digests of settings and of data sets, which distinguish runs."""

import hashlib
import json
from pathlib import Path
from typing import Any, Sequence

SAMPLED = 1 << 20  # bytes at both ends of a large file: the middle alone does not change
BLOCK = 1 << 20  # bytes that are read at once


def digest(value: Any) -> str:
    """Return eight characters that identify a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:8]


def digest_of_data(files: Sequence[Path], root: Path, sampled: int = SAMPLED) -> str:
    """Return eight characters that identify data files by their names, sizes and contents.

    Args:
        files: the files, below ``root``.
        sampled: bytes read at both ends of each file.
    """
    found = hashlib.sha256()
    for path in sorted(files):
        size = path.stat().st_size
        found.update(f"{path.relative_to(root).as_posix()}\0{size}\0".encode())
        with path.open("rb") as file:
            for begin in (0, max(sampled, size - sampled)):
                file.seek(begin)
                for read in range(0, sampled, BLOCK):
                    found.update(file.read(min(BLOCK, sampled - read)))
    return found.hexdigest()[:8]
