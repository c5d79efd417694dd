"""The published corpora of language modelling: addresses, checksums and counts, and their complete files."""

import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, Optional, Tuple

from fairseq_mega.lab.prepare.archives import Archive, name_of, naming_damage, obtain, open_packed
from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.runs.files import copy_stream


@dataclass(frozen=True)
class Corpus:
    """The address of a corpus, and the counts and checksums that it must have."""

    name: str
    url: str
    archive_digests: Dict[str, str]
    files: Tuple[str, ...]  # base names; three files are train, valid and test, one file is split
    file_digests: Dict[str, str]  # size of the only file
    lines: Tuple[int, ...] = ()
    tokens: Tuple[int, ...] = ()  # with one </s> per line
    dictionary: Optional[int] = None  # with the special tokens and fairseq's padding
    bytes: Optional[int] = None
    remedy: str = ""

    @property
    def archive(self) -> Archive:
        """Return the archive that is downloaded."""
        return Archive(self.url, self.archive_digests, self.remedy)

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Return the published lines and tokens per split."""
        return {
            split: {"lines": lines, "tokens": tokens} for split, lines, tokens in zip(SPLITS, self.lines, self.tokens)
        }


def _wikitext(version: str, md5: str, lines: int, tokens: int, dictionary: int) -> Corpus:
    name = f"wikitext-{version}"
    return Corpus(
        name=name,
        url=f"https://wikitext.smerity.com/{name}-v1.zip",  # the author's host; the first host has disappeared
        archive_digests={"md5": md5},
        files=tuple(f"wiki.{split}.tokens" for split in SPLITS),
        file_digests={},
        lines=(lines, 3760, 4358),
        tokens=(tokens, 217646, 245569),
        dictionary=dictionary,
        remedy=(
            f"Give your copy of {name}-v1.zip with --archive FILE, or the text of Salesforce/wikitext (Hugging Face) "
            "with --text DIR, as --help shows"
        ),
    )


CORPORA = {
    corpus.name: corpus
    for corpus in (
        _wikitext("103", "9ddaacaf6af0710eda8c456decff7832", 1801350, 103227021, 267744),
        _wikitext("2", "542ccefacc6c27f945fb54453812b3cd", 36718, 2088628, 33280),
        Corpus(
            name="enwik8",
            url="http://mattmahoney.net/dc/enwik8.zip",
            archive_digests={},
            files=("enwik8",),
            file_digests={
                "md5": "a1fa5ffddb56f4953e226637dabbb36a",
                "sha1": "57b8363b814821dc9d47aa4d41f58733519076b2",
            },
            dictionary=208,
            bytes=100_000_000,
            remedy="Give your copy of enwik8.zip, packed or unpacked, with --archive FILE",
        ),
    )
}


def unpack(corpus: Corpus, archive: Path, folder: Path) -> None:
    """Write the files of the corpus from its archive, or from its only file, to `folder`."""
    if not zipfile.is_zipfile(archive) and len(corpus.files) == 1:
        with open(archive, "rb") as stream:
            copy_stream(stream, folder / corpus.files[0])
        return
    with naming_damage(archive), zipfile.ZipFile(archive) as container:
        members = {name_of(name): name for name in container.namelist()}
        for name in corpus.files:
            with container.open(members[name]) as stream:
                copy_stream(stream, folder / name)


def copy_text(corpus: Corpus, text: Path, folder: Path) -> Records:
    """Copy the files of the corpus, plain or .gz, from `text` to `folder`; return their entries in card.json."""
    records: Records = {}
    for name in corpus.files:
        source = text / name if (text / name).is_file() else text / f"{name}.gz"
        with naming_damage(source), open_packed(source) as stream:
            copy_stream(stream, folder / name)
        records[source.name] = record_of(source)
    return records


def obtain_corpus(
    corpus: Corpus, raw: Path, archive: Optional[Path] = None, text: Optional[Path] = None, checked: bool = True
) -> Records:
    """Fetch or copy a corpus, verify and unpack it; return the entries of its files in card.json.

    Args:
        raw: folder of the unpacked files; existing files without an archive are used as they are.
        archive: the user's copy of the archive.
        text: folder with the user's copies of the unpacked files.
        checked: whether to compare the published checksums.

    Raises:
        OSError, DownloadError: if the corpus cannot be obtained, or differs from the published one.
    """
    if text is not None:
        return copy_text(corpus, text, raw)
    if archive is None and not (raw / corpus.archive.name).exists() and all((raw / n).is_file() for n in corpus.files):
        path, records = raw, {name: record_of(raw / name) for name in corpus.files}
    else:
        source_archive = corpus.archive if checked else corpus.archive._replace(digests={})
        path, records = obtain(source_archive, archive, raw)
        unpack(corpus, path, raw)
    if corpus.file_digests and checked:
        check_digests(raw / corpus.files[0], corpus.file_digests, corpus.bytes, f"It came from {path}. {corpus.remedy}")
    return records
