"""The user's labelled texts, as bytes."""

import argparse
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from fairseq_mega.data.card import kept_bytes, settings_of_data
from fairseq_mega.data.class_folders import listed
from fairseq_mega.data.text_units import own_symbols
from fairseq_mega.lab.prepare.checksums import records_of
from fairseq_mega.lab.prepare.classification.labelled_rows import FIRST_LINE, FIRST_LINES, labelled_rows
from fairseq_mega.lab.prepare.classification.subsets import (
    kept,
    note_on_limit,
    say_copies,
    say_lost,
    stratified_split,
)
from fairseq_mega.lab.prepare.classification.text_output import (
    BYTE_SYMBOLS,
    byte_note,
    byte_split,
    dictionaries_of,
    dictionary_files,
    write_text_task,
)
from fairseq_mega.lab.prepare.dataset import LABELLED, Dataset, Report
from fairseq_mega.lab.prepare.language_modeling.words import RESERVED
from fairseq_mega.lab.prepare.layouts import TEXTS
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.shared_options import LENGTH, add_length, add_limit, check_length, need_files
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.work_folder import WorkFolder

Texts = List[Tuple[bytes, str]]
DETAILS = """\
Tables in UTF-8 whose first line names the columns, a label and a text among them (label,text): CSV, or columns that
TABs separate in files .tsv, where a line is a row and quotes are characters; also with .gz. Other columns are left out.
Without --valid, a tenth of every label of --train is held out for it; likewise for --test. 1 MB of text becomes 2 MB of
data. A classifier is scored on further tables, and trained on with them, if they are made with --like. Classify new
texts with fairseq-mega-classify."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own texts."""
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="table to train on, plain or gzip")
    for split in ("valid", "test"):
        parser.add_argument(
            f"--{split}", type=Path, metavar="FILE", help=f"{split} table (default: held out of --train)"
        )
    parser.add_argument("--first-line", choices=FIRST_LINES, default="names", help=FIRST_LINE)
    add_length(parser, like=True)
    like = "earlier output of this command, the data of a classifier: use its symbols and labels"
    parser.add_argument("--like", type=Path, metavar="DATA", help=like)
    add_limit(parser)


def _given(args: argparse.Namespace) -> Dict[str, Path]:
    return {split: getattr(args, split) for split in SPLITS if getattr(args, split) is not None}


def length_of(args: argparse.Namespace) -> Dict[str, int]:
    """Return --length by its name; where it is not given, that of --like."""
    if args.length is not None:
        return {"length": args.length}
    like = None if args.like is None else kept_bytes(settings_of_data(args.like))
    return {"length": LENGTH if like is None else like[0]}


def check(args: argparse.Namespace) -> None:
    """Refuse files that are not there, and a length other than that of --like; set --length."""
    args.length = length_of(args)["length"]
    check_length(args)
    for split, path in _given(args).items():
        need_files(f"--{split}", path)
    if args.like is not None:
        need_files("--like", *dictionary_files(args.like), remedy="give the data folder of a classifier of texts")
        dictionaries_of(args.like)
        cut = kept_bytes(settings_of_data(args.like))
        if cut not in (None, (args.length, False)):
            remedy = "give other data" if cut[1] else f"give --length {cut[0]}"
            which = f"the {'last' if cut[1] else 'first'} {cut[0]} bytes"
            raise ValueError(f"--length is {args.length}, and --like {args.like} has {which} of each text: {remedy}")


def read_texts(path: Path, first_line: str = "names") -> Texts:
    """Return texts and labels of a table; raise ValueError, naming the line, if a text or label cannot be used."""
    found: Texts = []
    for number, field, text in labelled_rows(path, first_line):
        label = " ".join(field.split())
        if label in ("", "<unk>", *RESERVED):
            raise ValueError(
                f"{path}: line {number} has the label {label!r}: words are needed, and no symbol of fairseq's"
            )
        if not text.strip():
            raise ValueError(f"{path}: line {number} has no text: remove such lines")
        found.append((text.encode(), label))
    if not found:
        raise ValueError(f"{path} holds no rows: give rows of a label and a text")
    return found


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the tables, hold out the splits that are not given, and write the texts."""
    files = _given(args)
    parts = {split: read_texts(path, args.first_line) for split, path in files.items()}
    like = None if args.like is None else dictionaries_of(args.like)
    labels = sorted({label for _, label in parts["train"]} if like is None else own_symbols(like[1]))
    if len(labels) < 2:
        raise ValueError(f"--train {args.train} has one label only, {labels[0]!r}: give at least two")
    for split in files:
        unknown = {label for _, label in parts[split]} - set(labels)
        if unknown:
            place = f"--like {args.like}" if args.like else "--train"
            raise ValueError(f"--{split} {files[split]} has labels that {place} lacks: {listed(sorted(unknown))}")
    without = sorted(set(labels).difference(label for _, label in parts["train"]))
    if without:
        say(f"note: --train {args.train} has no text of {listed(without)}, labels of --like {args.like}")
    missing = [split for split in SPLITS if split not in files]
    if missing:
        numbers = np.array([labels.index(label) for _, label in parts["train"]])
        remedy = f"give {' and '.join(f'--{split}' for split in missing)}, more of them, or remove the label"
        rows = stratified_split(numbers, dict.fromkeys(missing, 0.1), labels, remedy)
        parts = {**parts, **{split: [parts["train"][row] for row in which] for split, which in rows.items()}}
    seen = {split: [(text[: args.length], label) for text, label in texts] for split, texts in parts.items()}
    say_copies(seen, "texts")
    cut = sum(len(text) > args.length for split in SPLITS for text, _ in parts[split])
    if cut:
        say(f"{cut} texts are longer than --length {args.length} bytes, and are cut to their beginning")
    splits = {}
    for split in SPLITS:
        texts = [parts[split][row] for row in kept(split, len(parts[split]), args.limit)]
        splits[split] = byte_split([((text,), label) for text, label in texts], args.length)
    statistics = write_text_task(work.output, splits, BYTE_SYMBOLS, labels, like)
    say_lost(statistics["train"]["labels"], sorted({label for _, label in parts["train"]}))
    notes: List[str] = byte_note(args.length) + note_on_limit(args.limit)
    if missing:
        notes.append(f"{' and '.join(missing)}: a tenth of every label of train each, drawn with seed 42")
    return Report("own texts", statistics, records_of(files.values()), notes)


DATASET = Dataset(
    "own-texts",
    LABELLED,
    "labelled texts of your own",
    DETAILS,
    add_options,
    check,
    make,
    reads=length_of,
    members={"like": ("*-bin/dict.txt",)},
    layout=TEXTS,
    own=True,
)
