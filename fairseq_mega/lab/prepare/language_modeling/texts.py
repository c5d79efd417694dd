"""Texts for language models as binarised data: enwik8, WikiText, a dictionary of English, and the user's text."""

import argparse
import json
import shutil
import zipfile
from itertools import product
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple

from fairseq_mega.data.card import UNIT, write_settings
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.archives import Archive, name_of, naming_damage, obtain, open_packed
from fairseq_mega.lab.prepare.binarised import binarise, binarised_counts, split_options
from fairseq_mega.lab.prepare.dataset import Dataset, Processed, Report, Scored
from fairseq_mega.lab.prepare.debian import obtain_packages
from fairseq_mega.lab.prepare.download import Records, check_digests, record_of, records_of
from fairseq_mega.lab.prepare.language_modeling.splitting import COUNTS, Cut, split_text
from fairseq_mega.lab.prepare.layouts import TEXT
from fairseq_mega.lab.prepare.options import HELD_OUT_SHARE, SUBWORDS, TEXTS, WORKERS, option
from fairseq_mega.lab.prepare.progress import SPLITS, print_line
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream, write_json

# --- The corpora: addresses, checksums and counts

PACKAGE = "dict-gcide"  # of Debian: a dictionary of English, 40 MB of text
GCIDE = Path("usr/share/dictd/gcide.dict.dz")  # format of the DICT server, compatible with gzip


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
    path, records = obtain(corpus.archive, given, raw, checked)
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
        dictionary = raw / "unpacked" / GCIDE
    unpack_file(dictionary, raw / "gcide.txt")
    return {**records, dictionary.name: record_of(dictionary)}


# --- Binarised data

# The script that starts the command has parsed them.
ENVIRONMENT = (
    option("--venv", help=argparse.SUPPRESS),
    option("--skip-setup", action="store_true", help=argparse.SUPPRESS),
)
ENWIK8_SIZES, TOY_SIZES = (90_000_000, 5_000_000, 5_000_000), (18_000, 1_000, 1_000)


def write_data(
    args: argparse.Namespace,
    work: WorkFolder,
    cut: Cut,
    origin: str,
    inputs: Records,
    threshold: int = 0,
    published: Optional[Corpus] = None,
) -> Report:
    """Write ``text``, ``data-bin`` and ``counts.json`` of a text.

    Args:
        threshold: rarer words become ``<unk>``.
        published: counts that the data must have.
    """
    text = work.part("text", lambda folder: split_text(cut, folder))
    # fairseq binarises one part itself, but only after its other processes have ended: so one more process.
    words = ["--only-source", *split_options(), "--workers", str(args.workers + (args.workers > 1))]
    if (text / DICTIONARY).exists():  # of subwords
        words += ["--srcdict", DICTIONARY]
    words += ["--thresholdsrc", str(threshold)] if threshold else []
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(text, words, folder, log))
    counts = count(data, text, threshold, published)
    write_json(work.output / "counts.json", counts)
    return Report(origin, counts["splits"], inputs, parts=("text", "data-bin"))


def count(data: Path, text: Path, threshold: int = 0, published: Optional[Corpus] = None) -> Dict[str, Any]:
    """Compare binarised data with their text and with published counts, and write their unit beside them.

    Args:
        data: output of fairseq-preprocess.
        text: output of :func:`.splitting.split_text`.
        threshold: rarer words have become ``<unk>``.

    Returns:
        Unit, size of the dictionary, and the counts of each split.

    Raises:
        OSError, ValueError: for a difference.
    """
    from fairseq.data import Dictionary

    dictionary = Dictionary.load(str(data / "dict.txt"))
    written = json.loads((text / COUNTS).read_text(encoding="utf-8"))
    unit, splits = written["unit"], {}
    for split, wanted in written["splits"].items():
        splits[split] = {**binarised_counts(data, split, dictionary), "bytes": wanted["bytes"]}
        print_line(f"{split}: {', '.join(f'{found:,} {name}' for name, found in splits[split].items())}")
    print_line(f"dictionary: {len(dictionary)} tokens, the special ones and fairseq's padding included")
    # fairseq pads to a multiple of 8
    size = None if threshold else -(-(4 + written["splits"]["train"]["symbols"]) // 8) * 8
    expected = [("the text", written["splits"], size)]
    if published is not None:
        expected.append((f"{published.name} as published", published.counts(), published.dictionary))
    for source, counts, size in expected:
        for split, name in product(counts, ("lines", "tokens")):
            if splits[split][name] != counts[split][name]:
                want, got = counts[split][name], splits[split][name]
                raise ValueError(f"{data}: {split}: expected {want} {name} ({source}), found {got}")
        if size not in (None, len(dictionary)):
            raise ValueError(f"{data}: expected a dictionary of {size} ({source}), found {len(dictionary)}")
    write_unit(data, unit, text / MODEL_FILE if unit == "subwords" else None)
    return {"unit": unit, "dictionary": len(dictionary), "splits": splits}


def write_unit(folder: Path, unit: str, model: Optional[Path] = None) -> None:
    """Write the unit of a text, and its subwords, beside its binarised data, for fairseq_mega.data.text_units."""
    if model is not None:
        shutil.copyfile(model, folder / MODEL_FILE)
    write_settings(folder, {UNIT: unit})


def make_enwik8(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut enwik8 into bytes."""
    corpus = CORPORA["enwik8"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, checked=not args.smoke)
    cut = Cut("bytes", work.raw / "enwik8", sizes=TOY_SIZES if args.smoke else ENWIK8_SIZES)
    return write_data(args, work, cut, corpus.archive.url, inputs)


def make_wikitext(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut WikiText into words."""
    corpus = CORPORA[f"wikitext-{args.version}"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, args.text, checked=not args.smoke)
    train, valid, test = (work.raw / name for name in corpus.files)
    cut = Cut("words", train, valid, test)
    return write_data(args, work, cut, corpus.archive.url, inputs, published=None if args.smoke else corpus)


def make_gcide(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the dictionary into bytes or words."""
    inputs = obtain_gcide(work.raw, args.deb, args.dictionary)
    amounts = {"blocks": args.blocks, "held_out": args.held_out or HELD_OUT_SHARE, "limit": args.limit}
    cut = Cut(args.unit, work.raw / "gcide.txt", **amounts, replace_invalid=True)
    return write_data(args, work, cut, "the Debian package dict-gcide", inputs, threshold_of(args, 5))


def make_text_lm(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the user's text into words, subwords or bytes."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    amounts = {"blocks": args.blocks, "held_out": args.held_out, "limit": args.limit}
    cut = Cut(args.unit, **given, **amounts, vocab_size=args.vocab_size or SUBWORDS)
    return write_data(args, work, cut, "the user's text", records_of(given.values()), threshold_of(args, 2))


def threshold_of(args: argparse.Namespace, usual: int) -> int:
    """Return --threshold; for bytes and subwords the value that keeps all."""
    if args.threshold is None:
        return usual if args.unit == "words" else 0
    return int(args.threshold)


def _dataset(
    name: str,
    make: Callable[[argparse.Namespace, WorkFolder], Report],
    **others: Any,
) -> Dataset:
    text = TEXTS[name]
    return Dataset(
        name,
        text.details,
        (*text.options, WORKERS, *ENVIRONMENT),
        make,
        check=text.check,
        usual_out=text.usual_out,
        layout=TEXT,
        **others,
    )


DATASETS = (
    _dataset(
        "enwik8",
        make_enwik8,
        vocab_size=lambda args: CORPORA["enwik8"].dictionary,
        scored=Scored(ENWIK8_SIZES[-1]),
        processed=Processed("enwik8_data_bin.zip", ("enwik8",)),
    ),
    _dataset(
        "wikitext",
        make_wikitext,
        members={"text": tuple(f"wiki.{split}.tokens*" for split in SPLITS)},
        vocab_size=lambda args: CORPORA[f"wikitext-{args.version}"].dictionary,
        scored=Scored(CORPORA["wikitext-103"].tokens[-1]),
        processed=Processed("wt103_data_bin.zip", ("wt103", "wikitext", "wiki103")),
    ),
    _dataset("gcide", make_gcide),
    _dataset("text-lm", make_text_lm, own=True),
)
