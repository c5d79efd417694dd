"""LibreOffice's help as a text task: the module of a page, or whether two pages are translations of each other."""

import argparse
from collections import Counter
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from fairseq_mega.lab.prepare.classification.subsets import kept, note_on_limit
from fairseq_mega.lab.prepare.classification.text_output import BYTE_SYMBOLS, byte_note, byte_split, write_text_task
from fairseq_mega.lab.prepare.dataset import LABELLED, Dataset, Report
from fairseq_mega.lab.prepare.layouts import TEXTS
from fairseq_mega.lab.prepare.libreoffice_help import (
    HELP,
    PACKAGES,
    UNPACKED,
    add_packages,
    check_packages,
    pages_of,
    read_page,
    unpacked,
)
from fairseq_mega.lab.prepare.progress import Progress
from fairseq_mega.lab.prepare.shared_options import (
    add_length,
    add_limit,
    add_seed,
    check_length,
    check_seed,
)
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.work_folder import WorkFolder

LEAST_PAGES = 20  # two of them are held out
Pages = Dict[str, bytes]
Pairs = List[Tuple[Tuple[bytes, ...], str]]

DETAILS = """\
--task class: predict the module of a page (swriter, scalc, ...; the first folder of its path) from its English text;
about 2500 pages, nine classes, no modules of fewer than 20 pages. --task retrieval: an English page with its German
translation (label 1) or the translation of another page (label 0), about 2500 of each; every page is in one split only,
once with each label on either side. 80, 10 and 10 % of the pages, drawn with --seed. The Debian packages
libreoffice-help-en-us and -de (5 MB, MPL-2.0) are fetched with apt-get download and not installed. Result 30 MB, about
a minute on one core. Every UTF-8 byte is a symbol; the first 4000 (--length) of a text are kept."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of the help pages."""
    parser.add_argument(
        "--task",
        choices=("class", "retrieval"),
        required=True,
        help="label: the module of a page, or whether two pages are translations",
    )
    add_seed(parser, "splits")
    add_length(parser)
    add_packages(parser)
    add_limit(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    check_packages(args)
    check_length(args)
    check_seed(args)


def read_pages(root: Path, language: str) -> Pages:
    """Return the text of every help page of a language by its path, paragraphs joined by line feeds, in sorted order.

    Pages without text are left out. Raises ValueError if no page is left.
    """
    pages: Pages = {}
    files = pages_of(root, language)
    for name, path in Progress(f"reading {language}", "pages", len(files)).follow(files.items()):
        text = "\n".join(paragraph for _, paragraph in read_page(path)).encode("utf-8")
        if text:
            pages[name] = text
    if not pages:
        raise ValueError(
            f"no help pages (*.html) below {root / HELP / language / 'text'}: give the package {PACKAGES[language]}"
        )
    return pages


def divide(count: int, draw: np.random.Generator) -> Dict[str, np.ndarray]:
    """Split ``count`` examples at random, 80, 10 and 10 %."""
    order = draw.permutation(count)
    held_out = count // 10
    return dict(zip(SPLITS, np.split(order, [count - 2 * held_out, count - held_out])))


def class_examples(pages: Pages, seed: int) -> Dict[str, Pairs]:
    """Label every page with its module, and split the pages of each module."""
    by_module: Dict[str, List[bytes]] = {}
    for page, text in pages.items():
        by_module.setdefault(page.split("/")[0], []).append(text)
    draw = np.random.default_rng(seed)
    splits: Dict[str, Pairs] = {split: [] for split in SPLITS}
    for module, texts in sorted(by_module.items()):
        if len(texts) < LEAST_PAGES:
            continue
        for split, numbers in divide(len(texts), draw).items():
            splits[split] += [((texts[number],), module) for number in numbers]
    if not splits["train"]:
        raise ValueError(f"no module has {LEAST_PAGES} pages: {dict(Counter(page.split('/')[0] for page in pages))}")
    return {split: [pairs[i] for i in draw.permutation(len(pairs))] for split, pairs in splits.items()}


def retrieval_examples(source: Pages, target: Pages, seed: int) -> Dict[str, Pairs]:
    """Pair every page with its translation, and with the translation of another page of the same split."""
    common = sorted(source.keys() & target.keys())
    if len(common) < LEAST_PAGES:
        raise ValueError(f"at least {LEAST_PAGES} pages in both languages are needed, found {len(common)}")
    draw = np.random.default_rng(seed)
    splits: Dict[str, Pairs] = {}
    for split, numbers in divide(len(common), draw).items():
        names = [common[number] for number in numbers]
        others = names[1:] + names[:1]  # a rotation of a random order: each page gets another page, each once
        pairs = [((source[name], target[name]), "1") for name in names]
        pairs += [((source[name], target[other]), "0") for name, other in zip(names, others)]
        splits[split] = [pairs[i] for i in draw.permutation(len(pairs))]
    return splits


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the pages, make the examples and write them."""
    languages = list(PACKAGES)[: 1 if args.task == "class" else 2]
    root, inputs = unpacked(args, work, [PACKAGES[language] for language in languages])
    pages = [read_pages(root, language) for language in languages]
    if args.task == "class":
        parts = class_examples(pages[0], args.seed)
        notes = [f"modules of fewer than {LEAST_PAGES} pages are left out"]
    else:
        parts = retrieval_examples(pages[0], pages[1], args.seed)
        notes = ["label 1: the page's own translation, 0: another page's of the same split"]
    labels = sorted({label for pairs in parts.values() for _, label in pairs})
    splits = {}
    for split, pairs in parts.items():
        splits[split] = byte_split([pairs[row] for row in kept(split, len(pairs), args.limit)], args.length)
    statistics = write_text_task(work.output, splits, BYTE_SYMBOLS, labels)
    notes += [*byte_note(args.length), *note_on_limit(args.limit)]
    return Report(f"LibreOffice help, seed {args.seed}", statistics, inputs, notes)


DATASET = Dataset(
    "help-pages",
    LABELLED,
    "LibreOffice help, from Debian packages",
    DETAILS,
    add_options,
    check,
    make,
    members=UNPACKED,
    layout=TEXTS,
)
