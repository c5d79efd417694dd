"""Obtain the corpora of language modelling: whole files or none, and SOURCE.json, which tells their origin."""

import argparse
import gzip
import zipfile
import zlib
from pathlib import Path

from fairseq_mega.lab.prepare.archives import obtain
from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.language_modeling import toy_data
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA, Corpus
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import check_zip, open_gzip
from fairseq_mega.lab.runs.files import copy_stream, write_json


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


def take_text(corpus: Corpus, text: Path, folder: Path) -> Records:
    """Copy the files of the corpus, plain or .gz, from `text` to `folder`; returns their entries in SOURCE.json."""
    records: Records = {}
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
        toy_data.write_corpus(corpus.name, args.output / corpus.archive.name)
    if args.text is not None:
        records = take_text(corpus, args.text, args.output)
    elif args.archive is not None and not args.archive.is_file():
        raise DownloadError(f"--archive {args.archive}: no such file. {corpus.remedy}")
    else:
        wanted = corpus.archive._replace(digests={}) if args.smoke else corpus.archive
        archive, records = obtain(wanted, args.archive, args.output)
        unpack(corpus, archive, args.output)
        if corpus.file_digests and not args.smoke:
            path = args.output / corpus.files[0]
            check_digests(path, corpus.file_digests, corpus.bytes, f"It came from {archive}. {corpus.remedy}")
    write_json(args.record, records)


def command_dictionary(args: argparse.Namespace) -> None:
    """Unpack a dictionary of the DICT server (.dict.dz, which gzip can read), and record the package it came in."""
    if args.smoke:
        toy_data.write_corpus("gcide", args.dictionary)
    say(f"{args.dictionary.name}: unpacking {args.dictionary.stat().st_size / 1e6:.0f} MB")
    try:
        with open_gzip(args.dictionary) as stream:
            copy_stream(stream, args.output)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DownloadError(f"{args.dictionary} is damaged: {error}; get a new copy of the package") from error
    records = {args.dictionary.name: record_of(args.dictionary)}
    if args.package is not None:
        records = {args.package.name: record_of(args.package, version=args.version), **records}
    write_json(args.record, records)
    for name, record in records.items():
        say(f"{name}: " + ", ".join(f"{key} {value}" for key, value in record.items()))
