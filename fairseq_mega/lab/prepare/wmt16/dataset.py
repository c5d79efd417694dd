"""WMT'16 English-German: fetched, unpacked, tokenised, cut by byte-pair encoding, cleaned and binarised.

Each part is whole or not there, and a wrong number of lines is refused.
"""

import argparse
import importlib.util
from functools import partial
from itertools import product
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.compat.files.card import SUBWORDS, TOKENIZER, digest_of_file
from fairseq_mega.data.card import read_json, write_settings
from fairseq_mega.lab.prepare.archives import name_of, obtain_recorded
from fairseq_mega.lab.prepare.binarised import binarise
from fairseq_mega.lab.prepare.dataset import PAIRS, Dataset, Report, Sources
from fairseq_mega.lab.prepare.layouts import TRANSLATION, Layout, parallel
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.prepare.shared_options import add_workers
from fairseq_mega.lab.prepare.wmt16.sources import (
    LANGUAGES,
    SPLITS,
    TRAIN,
    Corpus,
    archive_urls,
    corpora_with_counts,
)
from fairseq_mega.lab.prepare.wmt16.stages import BpeFactory, TokenizerFactory, clean_corpus, learn_bpe, transform
from fairseq_mega.lab.prepare.wmt16.texts import check_counts, concatenate, unpack
from fairseq_mega.lab.prepare.wmt16.toy_data import COUNTS, write_archives
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import count_lines

MERGES, TOY_MERGES = 32_000, 300
VOCAB_SIZE = 33_000  # of the dictionary, with the padding of fairseq-preprocess
MOSES = "--tokenizer moses --moses-no-dash-splits --moses-no-escape"  # options that tokenise as this file does
PARTS = ("raw", "tokenized", "bpe", "data-bin")

DETAILS = """\
4.5 million pairs of Europarl, Common Crawl and News Commentary to train on, newstest2013 to validate with, 2014, 2015
and 2016 to test: raw, tokenized, bpe (32,000 joint merges) and data-bin, whose one dictionary serves both directions.
40 GB in DIR, hours on 2 cores. The checksums of the five archives of statmt.org are recorded in DIR/checksums.json
and compared in later runs."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of WMT'16."""
    archives = "folder of the five archives; missing ones are downloaded into it (default: archives in --out)"
    parser.add_argument("--archives", type=Path, metavar="DIR", help=archives)
    parser.add_argument(
        "--no-download", action="store_true", help="fail if an archive is missing, instead of downloading it"
    )
    add_workers(parser)


def need_packages() -> None:
    """Raise ValueError where a package of the text preparation is missing."""
    absent = [name for name in ("sacremoses", "subword_nmt") if importlib.util.find_spec(name) is None]
    if absent:
        raise ValueError(f"WMT'16 needs {' and '.join(absent)}: pip install 'fairseq_mega[translation]'")


def unpack_all(archives: Path, corpora: Sequence[Corpus], raw: Path) -> None:
    """Unpack the archives, check the numbers of lines and join the training corpora."""
    raw.mkdir(parents=True, exist_ok=True)
    for url in archive_urls():
        archive = archives / name_of(url)
        print_line(f"{archive.name}: unpacking")
        unpack(archive, raw, [corpus for corpus in corpora if corpus.url == url])
    check_counts(raw, corpora)
    print_line(f"training corpora joined: {concatenate(raw)} pairs")


def tokenize(raw: Path, workers: int, tokenized: Path) -> None:
    """Tokenise all splits; the training text is cleaned before, dev and test sets are not."""
    for split, language in product(SPLITS, LANGUAGES):
        name = f"{split}.{language}"
        transform(raw / name, tokenized / name, TokenizerFactory(language, split == TRAIN), workers)


def encode(tokenized: Path, merges: int, workers: int, bpe: Path) -> None:
    """Learn joint merges, segment all splits, and keep the training pairs of sensible length."""
    codes = bpe / "codes"
    if not codes.exists():
        learn_bpe([tokenized / f"{TRAIN}.{language}" for language in LANGUAGES], codes, merges)
        print_line(f"{count_lines(codes) - 1} merges written")  # the first line names the format
    for split, language in product(SPLITS, LANGUAGES):
        transform(tokenized / f"{split}.{language}", bpe / f"{split}.{language}", BpeFactory(str(codes)), workers)
    read, kept = clean_corpus(bpe / TRAIN, bpe / f"{TRAIN}.clean", LANGUAGES)
    print_line(f"{kept} of {read} training pairs kept (3 to 150 subwords, ratio up to 1.5)")


def preprocess_words(workers: int) -> List[str]:
    """Return the options of fairseq-preprocess for all splits, with one dictionary."""
    tests = ",".join(f"newstest{year}" for year in (2014, 2015, 2016))
    splits = ["--trainpref", f"{TRAIN}.clean", "--validpref", "newstest2013", "--testpref", tests]
    words = [
        "--joined-dictionary",
        "--nwordssrc",
        str(VOCAB_SIZE),
        "--nwordstgt",
        str(VOCAB_SIZE),
        "--workers",
        str(workers),
    ]
    return ["--source-lang", "en", "--target-lang", "de", *splits, *words]


def write_data(bpe: Path, words: Sequence[str], folder: Path, log: Path) -> None:
    """Binarise all splits, and record the encoders of their text."""
    binarise(bpe, words, folder, log)
    codes = digest_of_file(bpe / "codes")
    write_settings(folder, {TOKENIZER: MOSES, SUBWORDS: f"--bpe subword_nmt --bpe-codes {codes}"})


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Fetch the archives and make all parts of them."""
    archives, record = args.archives or args.out / "archives", args.out / "checksums.json"
    corpora = corpora_with_counts(archives / COUNTS if args.smoke else None)

    def make_raw(folder: Path) -> None:
        for url in archive_urls():
            obtain_recorded(url, archives, record, not args.no_download)
        unpack_all(archives, corpora, folder)

    raw = work.part("raw", make_raw)
    tokenized = work.part("tokenized", partial(tokenize, raw, args.workers))
    bpe = work.part("bpe", partial(encode, tokenized, TOY_MERGES if args.smoke else MERGES, args.workers))
    words = preprocess_words(args.workers)
    log = work.scratch / "preprocess.log"
    work.part("data-bin", lambda folder: write_data(bpe, words, folder, log))
    splits = {split: {"pairs": count_lines(bpe / f"{split}.en")} for split in (f"{TRAIN}.clean", *SPLITS[1:])}
    return Report("the archives of statmt.org", splits, read_json(record), parts=PARTS)


def write_toy(folder: Path) -> List[str]:
    """Write small archives of an invented language pair; return the options that read them."""
    write_archives(folder)
    return ["--archives", str(folder), "--no-download"]


def check_sources(folder: Path, sources: Sources) -> None:
    """Refuse absent archives that may not be fetched."""
    archives = sources.archives or folder / "archives"
    missing = [url for url in archive_urls() if not (archives / name_of(url)).exists()]
    if missing and not sources.download:
        names = ", ".join(missing)
        raise ValueError(f"{archives} lacks the archives {names}: fetch them, or omit --no-download")


DATASET = Dataset(
    "wmt16",
    PAIRS,
    "WMT'16, English and German",
    DETAILS,
    add_options,
    lambda args: None,
    make,
    write_toy,
    leaves=PARTS,
    layout=Layout(("raw/newstest2014.en", "tokenized/newstest2014.de", *parallel(*LANGUAGES)), TRANSLATION),
    vocab_size=lambda args: VOCAB_SIZE,
    check_packages=need_packages,
    check_sources=check_sources,
)
