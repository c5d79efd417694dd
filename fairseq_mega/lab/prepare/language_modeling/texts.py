"""Texts for language models as binarised data: enwik8, WikiText, a dictionary of English, and the user's text."""

import argparse
from functools import partial
from pathlib import Path
from typing import Any, Callable, List, Optional

from fairseq_mega.lab.prepare.binarised import binarise, split_options
from fairseq_mega.lab.prepare.checksums import Records, records_of
from fairseq_mega.lab.prepare.dataset import LANGUAGE, Dataset, Processed, Report, Scored, Sources
from fairseq_mega.lab.prepare.language_modeling.counting import count
from fairseq_mega.lab.prepare.language_modeling.gcide import obtain_gcide
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA, Corpus, obtain_corpus
from fairseq_mega.lab.prepare.language_modeling.splitting import Cut, split_text
from fairseq_mega.lab.prepare.language_modeling.toy_data import write_corpus
from fairseq_mega.lab.prepare.layouts import TEXT
from fairseq_mega.lab.prepare.options import HELD_OUT_SHARE, SUBWORDS, TEXTS
from fairseq_mega.lab.prepare.sentencepieces import DICTIONARY
from fairseq_mega.lab.prepare.shared_options import add_workers
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.work_folder import RAW, WorkFolder
from fairseq_mega.lab.runs.files import write_json

ENWIK8_SIZES, TOY_SIZES = (90_000_000, 5_000_000, 5_000_000), (18_000, 1_000, 1_000)


def preprocess_words(text: Path, workers: int, threshold: int = 0) -> List[str]:
    """Return the options of fairseq-preprocess for ``text``, the output of ``split_text``."""
    # fairseq binarises one part itself, but only after its other processes have ended: so one more process.
    processes = workers + 1 if workers > 1 else 1
    words = ["--only-source", *split_options(), "--workers", str(processes)]
    if (text / DICTIONARY).exists():  # of subwords
        words += ["--srcdict", DICTIONARY]
    return [*words, "--thresholdsrc", str(threshold)] if threshold else words


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
    log = work.scratch / "preprocess.log"
    words = preprocess_words(text, args.workers, threshold)
    data = work.part("data-bin", lambda folder: binarise(text, words, folder, log))
    counts = count(data, text, threshold, published)
    write_json(work.output / "counts.json", counts)
    return Report(origin, counts["splits"], inputs, parts=("text", "data-bin"))


def make_enwik8(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut enwik8 into bytes."""
    corpus = CORPORA["enwik8"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, checked=not args.smoke)
    cut = Cut("bytes", work.raw / "enwik8", sizes=TOY_SIZES if args.smoke else ENWIK8_SIZES)
    return write_data(args, work, cut, corpus.url, inputs)


def make_wikitext(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut WikiText into words."""
    corpus = CORPORA[f"wikitext-{args.version}"]
    inputs = obtain_corpus(corpus, work.raw, args.archive, args.text, checked=not args.smoke)
    train, valid, test = (work.raw / name for name in corpus.files)
    cut = Cut("words", train, valid, test)
    return write_data(args, work, cut, corpus.url, inputs, published=None if args.smoke else corpus)


def make_gcide(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Cut the dictionary into bytes or words."""
    inputs = obtain_gcide(work.raw, args.deb, args.dictionary)
    text = work.raw / "gcide.txt"
    amounts = {"blocks": args.blocks, "held_out": args.held_out or HELD_OUT_SHARE, "limit": args.limit}
    cut = Cut(args.unit, text, **amounts, replace_invalid=True)
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


def write_toy(corpus: str, option: str, name: str, folder: Path) -> List[str]:
    """Write a toy text to a folder; return the options that read it."""
    write_corpus(corpus, folder / name)
    return [option, str(folder / name)]


def _dataset(
    name: str,
    summary: str,
    make: Callable[[argparse.Namespace, WorkFolder], Report],
    toy: Callable[[Path], List[str]],
    raw: Optional[str] = None,
    **others: Any,
) -> Dataset:
    """Return a data set.

    Args:
        raw: file of the unpacked text, in the folder of downloads.
        others: further entries.
    """
    text = TEXTS[name]

    def add_options(parser: argparse.ArgumentParser) -> None:
        text.add(parser)
        add_workers(parser)
        parser.add_argument("--venv", help=argparse.SUPPRESS)  # the script that starts this command has parsed them
        parser.add_argument("--skip-setup", action="store_true", help=argparse.SUPPRESS)

    def check_sources(folder: Path, sources: Sources) -> None:
        path = folder / RAW / str(raw)
        if raw is not None and not sources.download and not path.exists():
            raise ValueError(f"{path} does not exist: put the text of {name} there, or omit --no-download")

    about = (name, LANGUAGE, summary, text.details, add_options, text.check, make, toy, text.usual_out)
    return Dataset(*about, layout=TEXT, check_sources=check_sources, **others)


DATASETS = (
    _dataset(
        "enwik8",
        "enwik8 as bytes",
        make_enwik8,
        partial(write_toy, "enwik8", "--archive", "enwik8.zip"),
        "enwik8",
        vocab_size=lambda args: CORPORA["enwik8"].dictionary,
        scored=Scored(ENWIK8_SIZES[-1]),
        processed=Processed("enwik8_data_bin.zip", ("enwik8",)),
    ),
    _dataset(
        "wikitext",
        "WikiText-103 or WikiText-2 as words",
        make_wikitext,
        partial(write_toy, "wikitext-103", "--archive", "wikitext-103-v1.zip"),
        "wiki.train.tokens",
        members={"text": tuple(f"wiki.{split}.tokens*" for split in SPLITS)},
        vocab_size=lambda args: CORPORA[f"wikitext-{args.version}"].dictionary,
        scored=Scored(CORPORA["wikitext-103"].tokens[-1]),
        processed=Processed("wt103_data_bin.zip", ("wt103", "wikitext", "wiki103")),
    ),
    _dataset(
        "gcide",
        "a dictionary of English as bytes or words, from a Debian package",
        make_gcide,
        partial(write_toy, "gcide", "--dictionary", "gcide.dict.dz"),
        "gcide.txt",
    ),
    _dataset(
        "text-lm",
        "your own text as words, subwords or bytes",
        make_text_lm,
        partial(write_toy, "own", "--train", "own.txt"),
        own=True,
    ),
)
