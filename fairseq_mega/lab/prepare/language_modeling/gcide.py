"""The dictionary of English of the Debian package dict-gcide: 40 MB of text."""

import shutil
from pathlib import Path
from typing import List, Optional

from fairseq_mega.lab.prepare import debian
from fairseq_mega.lab.prepare.download import DownloadError

PACKAGE, TESTED = "dict-gcide", "0.48.5+nmu2"


def dictionary_words(raw: Path, package: Optional[debian.Package]) -> List[str]:
    """Arguments of ``dictionary`` that write ``raw/gcide.txt`` and SOURCE.json beside ``raw``.

    Args:
        package: that :func:`fetch` has unpacked, or None for a text that is made up.
    """
    output = ["dictionary", "--output", str(raw / "gcide.txt"), "--record", str(raw.parent / "SOURCE.json")]
    if package is None:
        return [*output, "--dictionary", str(raw / "gcide.dict.dz"), "--smoke"]
    found = ["--dictionary", str(dictionary_of(raw)), "--package", str(package.path), "--version", package.version]
    return [*output, *found]


def dictionary_of(raw: Path) -> Path:
    """Where the package's dictionary is unpacked."""
    return raw / "unpacked" / "usr" / "share" / "dictd" / "gcide.dict.dz"


def fetch(raw: Path, packages: Path, deb: Optional[Path] = None, otherwise: str = "") -> debian.Package:
    """Unpack the package into ``raw/unpacked``; without an own copy it is fetched into ``packages``.

    Raises:
        DownloadError: where it cannot be had, ending in ``otherwise``, or is another package.
    """
    debian.need_dpkg(otherwise)
    shutil.rmtree(raw / "unpacked", ignore_errors=True)
    path = deb or debian.fetch_package(PACKAGE, packages, otherwise)
    remedy = f"get a new copy of the package {PACKAGE}" if deb else "remove it, so that it is fetched again"
    package = debian.unpack_package(PACKAGE, path, raw / "unpacked", remedy)
    dictionary = dictionary_of(raw)
    if not dictionary.is_file() or not dictionary.stat().st_size:
        raise DownloadError(f"{path} is another package than {PACKAGE}, or of another make (tested: {TESTED})")
    return package
