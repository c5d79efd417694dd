"""Obtain the corpora of language modelling, check their checksums and unpack them.

    python -m ...language_modeling.sources obtain --corpus enwik8 --output RAW --record FILE [--archive FILE]
    python -m ...language_modeling.sources dictionary --dictionary gcide.dict.dz --output FILE --record FILE

Each leaves whole files in RAW or none, and records in SOURCE.json what they were made of.
"""

import argparse
import gzip
import os
import sys
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Dict, Optional, Sequence, Tuple

from fairseq_mega.corpora.download import (
    BLOCK,
    DownloadError,
    check_digests,
    fetch_missing,
    record_of,
    say,
    write_records,
)
from fairseq_mega.corpora.language_modeling import made_up
from fairseq_mega.corpora.language_modeling.byte_ranges import SPLITS
from fairseq_mega.corpora.unpacking import check_zip, open_gzip


@dataclass(frozen=True)
class Corpus:
    """Where a corpus comes from, and what it must be like."""

    name: str
    url: str
    archive_digests: Dict[str, str]
    files: Tuple[str, ...]  # base names; three are train, valid and test, one is still to be split
    file_digests: Dict[str, str]  # of the only file
    lines: Tuple[int, ...] = ()
    tokens: Tuple[int, ...] = ()  # with one </s> per line
    dictionary: Optional[int] = None  # with the special symbols and fairseq's padding
    bytes: Optional[int] = None
    remedy: str = ""

    @property
    def archive(self) -> str:
        """File name of the archive."""
        return self.url.rpartition("/")[2]

    def counts(self) -> Dict[str, Dict[str, int]]:
        """Return the published lines and tokens per split."""
        return {
            split: {"lines": lines, "tokens": tokens} for split, lines, tokens in zip(SPLITS, self.lines, self.tokens)
        }


def _wikitext(version: str, md5: str, lines: int, tokens: int, dictionary: int) -> Corpus:
    name = f"wikitext-{version}"
    return Corpus(
        name=name,
        url=f"https://wikitext.smerity.com/{name}-v1.zip",  # of its author; the first host has disappeared
        archive_digests={"md5": md5},
        files=tuple(f"wiki.{split}.tokens" for split in SPLITS),
        file_digests={},
        lines=(lines, 3760, 4358),
        tokens=(tokens, 217646, 245569),
        dictionary=dictionary,
        remedy=(
            f"The file looked for is {name}-v1.zip, MD5 {md5}: give an own copy with --archive FILE. The mirror "
            f"Salesforce/wikitext (Hugging Face), configuration {name}-v1, holds the same text: write its splits to "
            "wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens (or .gz), as --help shows, and give their "
            "folder with --text DIR"
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
            bytes=100_000_000,
            remedy=(
                "The file looked for is enwik8.zip; unpacked it has 100000000 bytes, MD5 "
                "a1fa5ffddb56f4953e226637dabbb36a: give an own copy, packed or unpacked, with --archive FILE"
            ),
        ),
    )
}


def obtain_archive(corpus: Corpus, archive: Optional[Path], folder: Path, check: bool) -> Path:
    """Return the path of the corpus' archive: `archive` or, if that is None, a download in `folder`.

    Raises :class:`DownloadError` when it is missing, cannot be fetched or, with `check`, has another checksum.
    """
    remedy = f"Remove it and repeat, or: {corpus.remedy}"
    if archive is None:
        archive = folder / corpus.archive
        fetch_missing(corpus.url, archive, corpus.remedy)
    else:
        remedy = corpus.remedy
        if not archive.is_file():
            raise DownloadError(f"--archive {archive}: no such file. {corpus.remedy}")
    if check and corpus.archive_digests:
        check_digests(archive, corpus.archive_digests, None, remedy)
    return archive


def copy_stream(source: IO[bytes], target: Path) -> None:
    """Write a stream to `target`, which appears whole or not at all."""
    partial = target.with_name(target.name + ".partial")
    target.parent.mkdir(parents=True, exist_ok=True)
    with open(partial, "wb") as stream:
        for block in iter(lambda: source.read(BLOCK), b""):
            stream.write(block)
    os.replace(partial, target)


def unpack(corpus: Corpus, archive: Path, folder: Path) -> None:
    """Write the files of the corpus from its archive, or from the only file itself, to `folder`."""
    if not zipfile.is_zipfile(archive) and len(corpus.files) == 1:
        with open(archive, "rb") as stream:
            copy_stream(stream, folder / corpus.files[0])
        return
    try:
        check_zip(archive)
        with zipfile.ZipFile(archive) as container:
            members = {name.rpartition("/")[2]: name for name in container.namelist()}
            for name in corpus.files:
                if name not in members:
                    raise DownloadError(f"{archive} has no {name}; found {', '.join(sorted(members))}. {corpus.remedy}")
                say(f"{name}: unpacking {container.getinfo(members[name]).file_size / 1e6:.0f} MB")
                with container.open(members[name]) as stream:
                    copy_stream(stream, folder / name)
    except (zipfile.BadZipFile, EOFError, zlib.error) as error:
        raise DownloadError(
            f"{archive} cannot be unpacked: {error}. Remove it and repeat, or: {corpus.remedy}"
        ) from error


def take_text(corpus: Corpus, text: Path, folder: Path) -> Dict[str, Dict[str, Any]]:
    """Copy the files of the corpus, plain or .gz, from the folder `text` to `folder`; returns what to record."""
    records = {}
    for name in corpus.files:
        source = next((path for path in (text / name, text / f"{name}.gz") if path.is_file()), None)
        if source is None:
            raise DownloadError(f"--text {text}: neither {name} nor {name}.gz is there. {corpus.remedy}")
        try:
            with open_gzip(source) if source.suffix == ".gz" else open(source, "rb") as stream:
                copy_stream(stream, folder / name)
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise DownloadError(f"{source} is damaged: {error}; get a new copy") from error
        records[source.name] = record_of(source)
    return records


def command_obtain(args: argparse.Namespace) -> None:
    """Fetch or take a corpus, verify and unpack it."""
    corpus = CORPORA[args.corpus]
    if args.smoke and args.archive is None:
        made_up.write_corpus(corpus.name, args.output / corpus.archive)
    if args.text is not None:
        records = take_text(corpus, args.text, args.output)
    else:
        archive = obtain_archive(corpus, args.archive, args.output, check=not args.smoke)
        unpack(corpus, archive, args.output)
        if corpus.file_digests and not args.smoke:
            path = args.output / corpus.files[0]
            check_digests(path, corpus.file_digests, corpus.bytes, f"It came from {archive}. {corpus.remedy}")
        records = {archive.name: record_of(archive, **({} if args.archive else {"url": corpus.url}))}
    write_records(args.record, records)


def command_dictionary(args: argparse.Namespace) -> None:
    """Unpack a dictionary of the DICT server (.dict.dz, which gzip can read), and record the package it came in."""
    if args.smoke:
        made_up.write_corpus("gcide", args.dictionary)
    say(f"{args.dictionary.name}: unpacking {args.dictionary.stat().st_size / 1e6:.0f} MB")
    try:
        with open_gzip(args.dictionary) as stream:
            copy_stream(stream, args.output)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DownloadError(f"{args.dictionary} is damaged: {error}; get a new copy of the package") from error
    records = {args.dictionary.name: record_of(args.dictionary)}
    if args.package is not None:
        records = {args.package.name: record_of(args.package, version=args.version), **records}
    write_records(args.record, records)
    for name, record in records.items():
        say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in record.items()))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="lm_corpora", description=(__doc__ or "").split("\n\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    obtain = commands.add_parser("obtain", help=command_obtain.__doc__)
    obtain.set_defaults(function=command_obtain)
    obtain.add_argument("--corpus", choices=sorted(CORPORA), required=True)
    obtain.add_argument("--archive", type=Path, metavar="FILE", help="an own copy of the download")
    obtain.add_argument("--text", type=Path, metavar="DIR", help="folder that holds the unpacked files, plain or .gz")
    dictionary = commands.add_parser("dictionary", help=command_dictionary.__doc__)
    dictionary.set_defaults(function=command_dictionary)
    dictionary.add_argument("--dictionary", type=Path, required=True, metavar="FILE")
    dictionary.add_argument("--package", type=Path, metavar="FILE", help="the package that the dictionary came in")
    dictionary.add_argument("--version", default="unknown", help="version of the package")
    for command in (obtain, dictionary):
        command.add_argument("--output", type=Path, required=True, metavar="PATH")
        command.add_argument("--record", type=Path, required=True, metavar="FILE", help="where to record the source")
        command.add_argument("--smoke", action="store_true", help="make a text up: no download, no checksums")
    return parser


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status (0, or 1 after an error message)."""
    args = build_parser().parse_args(argv)
    try:
        args.function(args)
    except (DownloadError, OSError) as error:
        print(f"lm_corpora: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
