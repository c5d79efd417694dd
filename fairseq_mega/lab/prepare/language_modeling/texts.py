"""Texts for language models as binarised data: enwik8, WikiText, a dictionary of English, and the user's text."""

import argparse
import gzip
import json
import shutil
import zipfile
from pathlib import Path
from typing import IO, Any, Dict, NamedTuple, Optional, Tuple, cast

from fairseq_mega.data.card import UNIT, write_settings
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.archives import Archive, name_of, naming_damage, obtain
from fairseq_mega.lab.prepare.binarised import binarise, binarised_counts, split_options
from fairseq_mega.lab.prepare.dataset import Dataset, Report, Scored
from fairseq_mega.lab.prepare.debian import PACKAGE_OPTIONS, unpacked
from fairseq_mega.lab.prepare.download import Records, check_digests, record_of, records_of
from fairseq_mega.lab.prepare.language_modeling.splitting import BLOCKS, COUNTS, HELD_OUT_SHARE, Cut, split_text
from fairseq_mega.lab.prepare.layouts import TEXT
from fairseq_mega.lab.prepare.options import (
    SUBWORDS,
    WORKERS,
    Option,
    archive,
    choice,
    folder_option,
    number_option,
    one_of,
    option,
    sources,
)
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


def obtain_corpus(corpus: Corpus, raw: Path, given: Optional[Path] = None, checked: bool = True) -> Records:
    """Fetch a corpus, or read the user's copy of its archive, verify it and unpack it to ``raw``.

    Args:
        checked: whether to compare the published checksums.

    Returns:
        The entry of the archive in card.json.

    Raises:
        OSError, DownloadError: if the corpus cannot be obtained, or differs from the published one.
    """
    path, records = obtain(corpus.archive, given, raw, checked)
    with naming_damage(path), zipfile.ZipFile(path) as container:
        members = {name_of(name): name for name in container.namelist()}
        for name in corpus.files:
            with container.open(members[name]) as stream:
                copy_stream(stream, raw / name)
    if corpus.digests and checked:
        remedy = f"It came from {path}. {corpus.archive.remedy}"
        check_digests(raw / corpus.files[0], corpus.digests, corpus.bytes, remedy)
    return records


# --- Binarised data

THRESHOLD = 2  # rarer words of the user's text become <unk>
ENWIK8_SIZES, TOY_SIZES = (90_000_000, 5_000_000, 5_000_000), (18_000, 1_000, 1_000)


def write_data(
    args: argparse.Namespace,
    work: WorkFolder,
    cut: Cut,
    origin: str,
    inputs: Records,
    published: Optional[Corpus] = None,
) -> Report:
    """Write ``text``, ``data-bin`` and ``counts.json`` of a text, which must have the published counts, if any."""
    text = work.part("text", lambda folder: split_text(cut, folder))
    # fairseq binarises one part itself, but only after its other processes have ended: so one more process.
    words = ["--only-source", *split_options(), "--workers", str(args.workers + (args.workers > 1))]
    if (text / DICTIONARY).exists():  # of subwords
        words += ["--srcdict", DICTIONARY]
    words += ["--thresholdsrc", str(cut.threshold)] if cut.threshold else []
    log = work.scratch / "preprocess.log"
    data = work.part("data-bin", lambda folder: binarise(text, words, folder, log))
    counts = count(data, text, published)
    write_json(work.output / "counts.json", counts)
    return Report(origin, counts["splits"], inputs, parts=("text", "data-bin"))


def count(data: Path, text: Path, published: Optional[Corpus] = None) -> Dict[str, Any]:
    """Compare binarised data with published counts, and write their unit beside them.

    Args:
        data: output of fairseq-preprocess.
        text: output of :func:`.splitting.split_text`.

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
    if published is not None:
        found = {split: {name: counts[name] for name in ("lines", "tokens")} for split, counts in splits.items()}
        if (found, len(dictionary)) != (published.counts(), published.dictionary):
            raise ValueError(
                f"{data}: {published.name} as published has {published.counts()} and a dictionary of "
                f"{published.dictionary}, found {found} and {len(dictionary)}"
            )
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
    corpus, folder = CORPORA[f"wikitext-{args.version}"], args.text or work.raw
    train, valid, test = (folder / name for name in corpus.files)
    if args.text is None:
        inputs = obtain_corpus(corpus, work.raw, args.archive, not args.smoke)
    else:
        inputs = records_of((train, valid, test))
    published = None if args.smoke else corpus
    return write_data(args, work, Cut("words", train, valid, test), corpus.archive.url, inputs, published)


def make_gcide(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the dictionary into bytes."""
    folder, inputs = unpacked(args, work, [PACKAGE])
    text, packed = work.scratch / "gcide.txt", folder / GCIDE
    with naming_damage(packed), gzip.open(packed) as stream:
        copy_stream(cast(IO[bytes], stream), text)
    cut = Cut("bytes", text, held_out=args.held_out or HELD_OUT_SHARE, limit=args.limit)
    return write_data(args, work, cut, "the Debian package dict-gcide", {**inputs, packed.name: record_of(packed)})


def make_text_lm(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the user's text into words, subwords or bytes."""
    given = {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}
    amounts = {"held_out": args.held_out, "limit": args.limit, "vocab_size": args.vocab_size or SUBWORDS}
    cut = Cut(args.unit, **given, **amounts, threshold=THRESHOLD if args.unit == "words" else 0)
    return write_data(args, work, cut, "the user's text", records_of(given.values()))


# --- The data sets

WRITTEN = "Writes DIR/data-bin (dict.txt and train, valid, test as .bin and .idx)"
ENWIK8 = f"""\
{WRITTEN} of the first 90, next 5 and last 5 million bytes
of enwik8. Every byte is a token, its decimal number; the line feed ends a line and becomes </s>. So a split has as
many tokens as bytes, and bits per token are bits per character. A split that does not end in a line feed has one
token more: fairseq appends </s> to its unfinished last line. Estimated: a quarter of an hour on 2 cores, 800 MB."""
WIKITEXT = f"""\
{WRITTEN} of WikiText, for fairseq's language modelling.
Lines, tokens and the size of the dictionary must be the published ones. Estimated for WikiText-103:
20 minutes on 2 cores, 2 GB in DIR.

The archives are downloaded from wikitext.smerity.com. If you cannot reach it, this writes the files for --text from
Salesforce/wikitext on Hugging Face (pip install datasets):

  import datasets
  for split, part in (("train", "train"), ("valid", "validation"), ("test", "test")):
      with open(f"wiki.{{split}}.tokens", "w", encoding="utf-8", newline="\\n") as file:
          for row in datasets.load_dataset("Salesforce/wikitext", "wikitext-103-v1", split=part):
              file.write(row["text"].rstrip("\\n") + "\\n")"""
DICTIONARY_TEXT = f"""\
{WRITTEN} of the Collaborative International Dictionary of
English as bytes, from the Debian package dict-gcide (GPL-2+): a stand-in for enwik8 where you cannot download it. The
text is alphabetical, so valid and test are drawn from 20 evenly spaced blocks of it (90, 5 and 5 % of every block).
About six minutes on 2 cores, 400 MB."""
TEXT_LM = f"""\
{WRITTEN} of your own text, for fairseq's language
modelling. Evenly spaced blocks of lines are held out. A text of 1 MB becomes 2 MB as bytes. Of words, those that occur
once in train become <unk>."""


def cutting(held_out: Optional[float]) -> Tuple[Option, ...]:
    """Return the options that cut a text into splits."""
    share = f"share of the text for valid, and for test (default: {HELD_OUT_SHARE})"
    return (
        option("--held-out", type=float, default=held_out, metavar="SHARE", help=share),
        number_option("--limit", None, "use this many bytes only, in equal parts from all blocks (default: all)"),
    )


DATASETS = (
    Dataset(
        "enwik8",
        ENWIK8,
        (archive("enwik8.zip"), WORKERS),
        make_enwik8,
        vocab_size=lambda args: CORPORA["enwik8"].dictionary,
        layout=TEXT,
        scored=Scored(ENWIK8_SIZES[-1]),
    ),
    Dataset(
        "wikitext",
        WIKITEXT,
        (
            choice("--version", ("103", "2"), "WikiText-103 or WikiText-2"),
            one_of(
                archive("wikitext-103-v1.zip or wikitext-2-v1.zip"),
                folder_option("--text", text="folder with wiki.train.tokens, wiki.valid.tokens and wiki.test.tokens"),
            ),
            WORKERS,
        ),
        make_wikitext,
        members={"text": tuple(f"wiki.{split}.tokens" for split in SPLITS)},
        vocab_size=lambda args: CORPORA[f"wikitext-{args.version}"].dictionary,
        layout=TEXT,
        scored=Scored(CORPORA["wikitext-103"].tokens[-1]),
    ),
    Dataset(
        "gcide",
        DICTIONARY_TEXT,
        (*cutting(None), PACKAGE_OPTIONS, WORKERS),
        make_gcide,
        reads=lambda args: {"unit": "bytes", "blocks": BLOCKS},
        members={"packages": (str(GCIDE),)},
        layout=TEXT,
    ),
    Dataset(
        "text-lm",
        TEXT_LM,
        (
            *sources("text"),
            choice(
                "--unit",
                ("words", "subwords", "bytes"),
                "words (UTF-8, split at white space), subwords (learnt from train) or bytes (any file)",
            ),
            number_option("--vocab-size", None, f"number of subwords to learn (default: {SUBWORDS})"),
            *cutting(HELD_OUT_SHARE),
            WORKERS,
        ),
        make_text_lm,
        reads=lambda args: {"blocks": BLOCKS},
        layout=TEXT,
        own=True,
    ),
)
