"""The corpora of language modelling, published ones and a dictionary: addresses, checksums, counts, complete files."""

import zipfile
from pathlib import Path
from typing import Dict, NamedTuple, Optional, Tuple

from fairseq_mega.lab.prepare.archives import Archive, name_of, naming_damage, obtain, open_packed
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.download import Records, check_digests, record_of
from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.runs.files import copy_stream

PACKAGE = "dict-gcide"  # of Debian: a dictionary of English, 40 MB of text
DICTIONARY = Path("usr/share/dictd/gcide.dict.dz")  # format of the DICT server, compatible with gzip


class Corpus(NamedTuple):
    """A published corpus, and the counts and checksums that it must have."""

    name: str
    archive: Archive
    files: Tuple[str, ...]  # base names; three files are train, valid and test, one file is split
    dictionary: int  # with the special tokens and fairseq's padding
    lines: Tuple[int, ...] = ()  # of each split
    tokens: Tuple[int, ...] = ()  # with one </s> per line
    digests: Dict[str, str] = {}  # of the only file
    bytes: Optional[int] = None  # of the only file

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Return the published lines and tokens per split."""
        return {
            split: {"lines": lines, "tokens": tokens} for split, lines, tokens in zip(SPLITS, self.lines, self.tokens)
        }


def _wikitext(name: str, md5: str, lines: int, tokens: int, dictionary: int) -> Corpus:
    url = f"https://wikitext.smerity.com/{name}-v1.zip"  # the author's host; the first host has disappeared
    remedy = f"Give your copy of {name}-v1.zip with --archive FILE, or its text with --text DIR, as --help shows"
    files = tuple(f"wiki.{split}.tokens" for split in SPLITS)
    archive = Archive(url, {"md5": md5}, remedy)
    return Corpus(name, archive, files, dictionary, (lines, 3760, 4358), (tokens, 217646, 245569))


CORPORA = {
    "wikitext-103": _wikitext("wikitext-103", "9ddaacaf6af0710eda8c456decff7832", 1801350, 103227021, 267744),
    "wikitext-2": _wikitext("wikitext-2", "542ccefacc6c27f945fb54453812b3cd", 36718, 2088628, 33280),
    "enwik8": Corpus(
        "enwik8",
        Archive(
            "http://mattmahoney.net/dc/enwik8.zip",
            {},
            "Give your copy of enwik8.zip, packed or unpacked, with --archive FILE",
        ),
        ("enwik8",),
        208,
        digests={"md5": "a1fa5ffddb56f4953e226637dabbb36a", "sha1": "57b8363b814821dc9d47aa4d41f58733519076b2"},
        bytes=100_000_000,
    ),
}


def obtain_corpus(
    corpus: Corpus, raw: Path, given: Optional[Path] = None, text: Optional[Path] = None, checked: bool = True
) -> Records:
    """Fetch or copy a corpus, verify and unpack it; return the entries of its files in card.json.

    Args:
        raw: folder of the unpacked files.
        given: the user's copy of the archive, or of the only file.
        text: folder with the user's copies of the unpacked files, plain or .gz.
        checked: whether to compare the published checksums.

    Raises:
        OSError, DownloadError: if the corpus cannot be obtained, or differs from the published one.
    """
    if text is not None:
        plain = {name: text / name for name in corpus.files}
        sources = {name: path if path.is_file() else path.with_name(f"{name}.gz") for name, path in plain.items()}
        for name, source in sources.items():
            unpack_file(source, raw / name)
        return {source.name: record_of(source) for source in sources.values()}
    path, records = obtain(corpus.archive if checked else corpus.archive._replace(digests={}), given, raw)
    if not zipfile.is_zipfile(path) and len(corpus.files) == 1:
        unpack_file(path, raw / corpus.files[0])
    else:
        with naming_damage(path), zipfile.ZipFile(path) as container:
            members = {name_of(name): name for name in container.namelist()}
            for name in corpus.files:
                with container.open(members[name]) as stream:
                    copy_stream(stream, raw / name)
    if corpus.digests and checked:
        remedy = f"It came from {path}. {corpus.archive.remedy}"
        check_digests(raw / corpus.files[0], corpus.digests, corpus.bytes, remedy)
    return records


def unpack_file(packed: Path, target: Path) -> None:
    """Copy a file, plain or packed with gzip."""
    with naming_damage(packed), open_packed(packed) as stream:
        copy_stream(stream, target)


def obtain_gcide(raw: Path, deb: Optional[Path] = None, dictionary: Optional[Path] = None) -> Records:
    """Write ``raw/gcide.txt``, and return the entries of its sources in card.json.

    Args:
        deb: the user's copy of the package; without copy and dictionary the package is fetched into ``raw``.
        dictionary: the file gcide.dict.dz of the package.
    """
    records: Records = {}
    if dictionary is None:
        records = obtain_packages([PACKAGE], [deb] if deb else None, raw, raw / "unpacked")
        dictionary = raw / "unpacked" / DICTIONARY
    unpack_file(dictionary, raw / "gcide.txt")
    return {**records, dictionary.name: record_of(dictionary)}
