"""Obtain the corpora of language modelling as complete files, with the entries on their origin in card.json."""

import zipfile
from pathlib import Path
from typing import Optional

from fairseq_mega.lab.prepare.archives import name_of, obtain
from fairseq_mega.lab.prepare.checksums import Records, check_digests, record_of
from fairseq_mega.lab.prepare.download import DownloadError
from fairseq_mega.lab.prepare.language_modeling.published import Corpus
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.unpacking import check_zip, naming_damage, open_gzip
from fairseq_mega.lab.runs.files import copy_stream


def unpack(corpus: Corpus, archive: Path, folder: Path) -> None:
    """Write the files of the corpus from its archive, or from its only file, to `folder`."""
    if not zipfile.is_zipfile(archive) and len(corpus.files) == 1:
        with open(archive, "rb") as stream:
            copy_stream(stream, folder / corpus.files[0])
        return
    with naming_damage(archive, f"remove it and repeat. {corpus.remedy}"):
        check_zip(archive)
        with zipfile.ZipFile(archive) as container:
            members = {name_of(name): name for name in container.namelist()}
            for name in corpus.files:
                if name not in members:
                    raise DownloadError(f"{archive} has no {name}; found {', '.join(sorted(members))}. {corpus.remedy}")
                say(f"{name}: unpacking {container.getinfo(members[name]).file_size / 1e6:.0f} MB")
                with container.open(members[name]) as stream:
                    copy_stream(stream, folder / name)


def take_text(corpus: Corpus, text: Path, folder: Path) -> Records:
    """Copy the files of the corpus, plain or .gz, from `text` to `folder`; return their entries in card.json."""
    records: Records = {}
    for name in corpus.files:
        source = next((path for path in (text / name, text / f"{name}.gz") if path.is_file()), None)
        if source is None:
            raise DownloadError(f"--text {text}: it contains neither {name} nor {name}.gz. {corpus.remedy}")
        with naming_damage(source), open_gzip(source) if source.suffix == ".gz" else open(source, "rb") as stream:
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
        DownloadError: if the corpus cannot be obtained, or differs from the published one.
    """
    if text is not None:
        return take_text(corpus, text, raw)
    if archive is None and not (raw / corpus.archive.name).exists() and all((raw / n).is_file() for n in corpus.files):
        path, records = raw, {name: record_of(raw / name) for name in corpus.files}
    elif archive is not None and not archive.is_file():
        raise DownloadError(f"--archive {archive}: no such file. {corpus.remedy}")
    else:
        wanted = corpus.archive if checked else corpus.archive._replace(digests={})
        path, records = obtain(wanted, archive, raw)
        unpack(corpus, path, raw)
    if corpus.file_digests and checked:
        check_digests(raw / corpus.files[0], corpus.file_digests, corpus.bytes, f"It came from {path}. {corpus.remedy}")
    return records
