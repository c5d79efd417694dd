"""The dictionary of English of the Debian package dict-gcide: 40 MB of text."""

from pathlib import Path
from typing import Optional

from fairseq_mega.lab.prepare.archives import naming_damage, open_packed
from fairseq_mega.lab.prepare.checksums import Records, record_of
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import copy_stream

PACKAGE = "dict-gcide"
DICTIONARY = Path("usr/share/dictd/gcide.dict.dz")  # format of the DICT server, compatible with gzip


def obtain_gcide(raw: Path, deb: Optional[Path] = None, dictionary: Optional[Path] = None) -> Records:
    """Write ``raw/gcide.txt``, and return the entries of its sources in card.json.

    Args:
        deb: the user's copy of the package; without copy and dictionary the package is fetched into ``raw``.
        dictionary: the file gcide.dict.dz of the package.

    Raises:
        OSError, DownloadError: if the package cannot be obtained, or is another package.
    """
    records: Records = {}
    if dictionary is None:
        records = obtain_packages([PACKAGE], [deb] if deb else None, raw, raw / "unpacked")
        dictionary = raw / "unpacked" / DICTIONARY
    print_line(f"{dictionary.name}: unpacking {dictionary.stat().st_size / 1e6:.0f} MB")
    with naming_damage(dictionary), open_packed(dictionary) as stream:
        copy_stream(stream, raw / "gcide.txt")
    return {**records, dictionary.name: record_of(dictionary)}
