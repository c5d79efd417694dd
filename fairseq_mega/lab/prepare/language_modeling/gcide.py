"""The dictionary of English of the Debian package dict-gcide: 40 MB of text."""

import shutil
from pathlib import Path
from typing import Optional

from fairseq_mega.lab.prepare import debian
from fairseq_mega.lab.prepare.checksums import Records, record_of
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import naming_damage, open_gzip
from fairseq_mega.lab.runs.files import copy_stream

PACKAGE, TESTED = "dict-gcide", "0.48.5+nmu2"


def obtain_gcide(raw: Path, deb: Optional[Path] = None, dictionary: Optional[Path] = None) -> Records:
    """Write ``raw/gcide.txt``, and return the entries of its sources in card.json.

    Args:
        deb: the user's copy of the package; without copy and dictionary the package is fetched into ``raw``.
        dictionary: the file gcide.dict.dz of the package.

    Raises:
        DownloadError: if the package cannot be obtained, or is another package.
    """
    records: Records = {}
    if dictionary is None:
        package = fetch(raw, deb)
        dictionary = dictionary_of(raw)
        records[package.path.name] = record_of(package.path, version=package.version)
    say(f"{dictionary.name}: unpacking {dictionary.stat().st_size / 1e6:.0f} MB")
    with naming_damage(dictionary), open_gzip(dictionary) as stream:  # format of the DICT server, compatible with gzip
        copy_stream(stream, raw / "gcide.txt")
    records[dictionary.name] = record_of(dictionary)
    for name, record in records.items():
        say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in record.items()))
    return records


def dictionary_of(raw: Path) -> Path:
    """Return the path of the package's unpacked dictionary."""
    return raw / "unpacked" / "usr" / "share" / "dictd" / "gcide.dict.dz"


def fetch(raw: Path, deb: Optional[Path] = None) -> debian.Package:
    """Unpack the package into ``raw/unpacked``; without a given copy, fetch it into ``raw``.

    Raises:
        DownloadError: if it cannot be obtained, or is another package.
    """
    debian.need_dpkg()
    shutil.rmtree(raw / "unpacked", ignore_errors=True)
    path = deb or debian.fetch_package(PACKAGE, raw)
    remedy = f"remove it, and get a new copy of the package {PACKAGE}" if deb else "remove it, and it is fetched again"
    package = debian.unpack_package(PACKAGE, path, raw / "unpacked", remedy)
    dictionary = dictionary_of(raw)
    if not dictionary.is_file() or not dictionary.stat().st_size:
        raise DownloadError(f"{path} is not the package {PACKAGE}, or of another version (tested: {TESTED})")
    return package
