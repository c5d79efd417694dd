"""The corpora of language modelling, published ones and a dictionary: addresses, checksums, counts, complete files."""

import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Dict, Optional, Tuple

from fairseq_mega.lab.prepare.archives import Archive, name_of, naming_damage, obtain, open_packed
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.download import Records, check_digests, record_of, records_of
from fairseq_mega.lab.prepare.progress import SPLITS, print_line
from fairseq_mega.lab.runs.files import copy_stream

PACKAGE = "dict-gcide"  # of Debian: a dictionary of English, 40 MB of text
DICTIONARY = Path("usr/share/dictd/gcide.dict.dz")  # format of the DICT server, compatible with gzip


@dataclass(frozen=True)
class Corpus:
    """The address of a corpus, and the counts and checksums that it must have."""

    name: str
    url: str
    remedy: str
    dictionary: int  # with the special tokens and fairseq's padding
    files: Tuple[str, ...]  # base names; three files are train, valid and test, one file is split
    archive_digests: Dict[str, str] = field(default_factory=dict)
    file_digests: Dict[str, str] = field(default_factory=dict)  # of the only file
    bytes: Optional[int] = None  # of the only file
    lines: Tuple[int, ...] = ()
    tokens: Tuple[int, ...] = ()  # with one </s> per line

    @property
    def archive(self) -> Archive:
        """Return the archive that is downloaded."""
        return Archive(self.url, self.archive_digests, self.remedy)

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Return the published lines and tokens per split."""
        return {
            split: {"lines": lines, "tokens": tokens} for split, lines, tokens in zip(SPLITS, self.lines, self.tokens)
        }


def _wikitext(name: str, md5: str, lines: int, tokens: int, dictionary: int) -> Corpus:
    return Corpus(
        name,
        f"https://wikitext.smerity.com/{name}-v1.zip",  # the author's host; the first host has disappeared
        f"Give your copy of {name}-v1.zip with --archive FILE, or the text of Salesforce/wikitext (Hugging Face) "
        "with --text DIR, as --help shows",
        dictionary,
        tuple(f"wiki.{split}.tokens" for split in SPLITS),
        {"md5": md5},
        lines=(lines, 3760, 4358),
        tokens=(tokens, 217646, 245569),
    )


CORPORA = {
    "wikitext-103": _wikitext("wikitext-103", "9ddaacaf6af0710eda8c456decff7832", 1801350, 103227021, 267744),
    "wikitext-2": _wikitext("wikitext-2", "542ccefacc6c27f945fb54453812b3cd", 36718, 2088628, 33280),
    "enwik8": Corpus(
        "enwik8",
        "http://mattmahoney.net/dc/enwik8.zip",
        "Give your copy of enwik8.zip, packed or unpacked, with --archive FILE",
        208,
        ("enwik8",),
        file_digests={
            "md5": "a1fa5ffddb56f4953e226637dabbb36a",
            "sha1": "57b8363b814821dc9d47aa4d41f58733519076b2",
        },
        bytes=100_000_000,
    ),
}


def obtain_corpus(
    corpus: Corpus, raw: Path, archive: Optional[Path] = None, text: Optional[Path] = None, checked: bool = True
) -> Records:
    """Fetch or copy a corpus, verify and unpack it; return the entries of its files in card.json.

    Args:
        raw: folder of the unpacked files; existing files without an archive are used as they are.
        archive: the user's copy of the archive, or of the only file.
        text: folder with the user's copies of the unpacked files, plain or .gz.
        checked: whether to compare the published checksums.

    Raises:
        OSError, DownloadError: if the corpus cannot be obtained, or differs from the published one.
    """
    path, records = raw, {}
    unpacked = [raw / name for name in corpus.files]
    if text is not None:
        for name in corpus.files:
            source = text / name if (text / name).is_file() else text / f"{name}.gz"
            unpack_file(source, raw / name)
            records[source.name] = record_of(source)
    elif archive is None and not (raw / corpus.archive.name).exists() and all(map(Path.is_file, unpacked)):
        records = records_of(unpacked)
    else:
        path, records = obtain(corpus.archive if checked else corpus.archive._replace(digests={}), archive, raw)
        if not zipfile.is_zipfile(path) and len(corpus.files) == 1:
            unpack_file(path, raw / corpus.files[0])
        else:
            with naming_damage(path), zipfile.ZipFile(path) as container:
                members = {name_of(name): name for name in container.namelist()}
                for name in corpus.files:
                    with container.open(members[name]) as stream:
                        copy_stream(stream, raw / name)
    if corpus.file_digests and checked:
        check_digests(raw / corpus.files[0], corpus.file_digests, corpus.bytes, f"It came from {path}. {corpus.remedy}")
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
    print_line(f"{dictionary.name}: unpacking {dictionary.stat().st_size / 1e6:.0f} MB")
    unpack_file(dictionary, raw / "gcide.txt")
    return {**records, dictionary.name: record_of(dictionary)}
