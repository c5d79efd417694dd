"""Archives without a published checksum: read to their end at first, and afterwards compared with that first time."""

import json
import shutil
import zlib
from pathlib import Path

from fairseq_mega.lab.prepare.checksums import Records, record_of, sha256_of
from fairseq_mega.lab.prepare.download import DownloadError, fetch
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import open_gzip
from fairseq_mega.lab.runs.files import blocks_of, existing_parent, write_json

LEAST_FREE = 1 << 28  # bytes, where the archives go


def obtain_recorded(url: str, folder: Path, record_file: Path, allow_download: bool = True) -> Path:
    """Return the path of ``url``'s archive in ``folder``, downloaded if absent, and verified.

    The first time, the archive is read to its end (gzip), and size and SHA-256 are written to ``record_file``;
    afterwards it must still match them. Raises :class:`DownloadError` otherwise.
    """
    name = url.rpartition("/")[2]
    path = folder / name
    records = read_records(record_file)
    if not path.exists():
        download(url, path, allow_download)
    size, known = path.stat().st_size, records.get(name)
    if known is None:
        say(f"{name}: {size} bytes, checking")
        check_gzip(path)
        records[name] = record_of(path, url=url)
        write_json(record_file, records)
    elif known["bytes"] != size:
        raise DownloadError(f"{path}: expected {known['bytes']} bytes, found {size}; remove it and fetch it again")
    elif known["sha256"] != (digest := sha256_of(path)):
        raise DownloadError(
            f"{path}: expected SHA-256 {known['sha256']}, found {digest}; remove it and fetch it again, or remove its "
            f"entry from {record_file} if the new file is wanted"
        )
    say(f"{name}: {size} bytes, SHA-256 {records[name]['sha256']}, {'as recorded' if known else 'recorded'}")
    return path


def download(url: str, path: Path, allowed: bool) -> None:
    """Download a file; raises :class:`DownloadError` where that is not allowed or there is hardly any room for it."""
    if not allowed:
        raise DownloadError(f"{path} does not exist and --no-download was given; fetch it from {url}")
    if shutil.disk_usage(existing_parent(path.parent)).free < LEAST_FREE:
        raise DownloadError(f"less than 256 MiB are free where {path.parent} lies; free some or choose another folder")
    say(f"{path.name}: downloading {url}")
    fetch(url, path)


def check_gzip(path: Path) -> None:
    """Read a gzip file to its end; raises :class:`DownloadError` if it is cut off, damaged, empty or too large."""
    unpacked = 0
    try:
        with open_gzip(path) as stream:
            for block in blocks_of(stream):
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


def read_records(path: Path) -> Records:
    """Return the recorded sizes and checksums, ``{name: {"url", "bytes", "sha256"}}``; none yet gives ``{}``."""
    if not path.exists():
        return {}
    try:
        records: Records = json.loads(path.read_text(encoding="utf-8"))
        if all({"bytes", "sha256"} <= set(entry) for entry in records.values()):
            return records
        problem = "an entry lacks bytes or sha256"
    except (ValueError, AttributeError, TypeError) as error:
        problem = str(error)
    raise DownloadError(f"{path} is no list of checksums ({problem}); remove it to record them anew")
