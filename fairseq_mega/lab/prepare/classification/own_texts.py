"""The user's labelled texts, as bytes."""

import argparse
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from fairseq_mega.data.class_folders import listed
from fairseq_mega.data.json_lines import FIRST_TEXTS, told_form
from fairseq_mega.data.text_units import own_symbols
from fairseq_mega.lab.prepare.checksums import records_of
from fairseq_mega.lab.prepare.classification.labelled_rows import FIRST_LINE, FIRST_LINES, check_columns, labelled_rows
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
from fairseq_mega.lab.prepare.text_files import is_partly_utf8, is_utf8, not_utf8
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.tasks.lra_text import OWN_TEXTS, KeptBytes

Texts = List[Tuple[bytes, str]]
DETAILS = """\
Tables with an example per line: label TAB text. A label is any word or words, a text any bytes without a line feed. A
first line that names the columns, such as id TAB label TAB text, is no example; a table with such a line may have other
columns, which are left out, and may also be CSV. Without --valid, a tenth of every label of --train is held out for it;
likewise for --test. 1 MB of text becomes 2 MB of data. A classifier is scored on further tables, and trained on with
them, if they are made with --like. Classify new texts with fairseq-mega-classify."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own texts."""
    parser.add_argument("--train", type=Path, required=True, metavar="FILE", help="table to train on, plain or gzip")
    for split in ("valid", "test"):
        parser.add_argument(
            f"--{split}", type=Path, metavar="FILE", help=f"{split} table (default: held out of --train)"
        )
    parser.add_argument("--first-line", choices=FIRST_LINES, default="auto", help=FIRST_LINE)
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
    like = None if args.like is None else KeptBytes.of_data(args.like)
    return {"length": LENGTH if like is None else like.length}


def check(args: argparse.Namespace) -> None:
    """Refuse files that are not there, and a length other than that of --like; set --length."""
    args.length = length_of(args)["length"]
    check_length(args)
    for split, path in _given(args).items():
        need_files(f"--{split}", path)
    if args.like is not None:
        need_files("--like", *dictionary_files(args.like), remedy="give the data folder of a classifier of texts")
        dictionaries_of(args.like)
        cut = KeptBytes.of_data(args.like)
        if cut is not None and cut != KeptBytes(args.length, from_end=False):
            remedy = "give other data" if cut.from_end else f"give --length {cut.length}"
            raise ValueError(
                f"--length is {args.length}, and --like {args.like} has {cut.described()} of each text: {remedy}"
            )


def read_texts(path: Path, first_line: str = "auto") -> Texts:
    """Return texts and labels of a table; raise ValueError, naming the line, if a text or label cannot be used."""
    found: Texts = []
    others: List[int] = []  # lines that are not UTF-8
    blank: List[int] = []  # lines without text
    for number, field, text in labelled_rows(path, first_line):
        label = " ".join(field.decode("utf-8", "replace").split())
        if "\ufffd" in label and not is_utf8(field):
            raise ValueError(f"{path}: line {number} has a label that is not UTF-8: {not_utf8(path)}")
        if label in ("", "<unk>", *RESERVED) or "\ufffd" in label:
            raise ValueError(
                f"{path}: line {number} has the label {label[:20]!r}: words in UTF-8 are needed, and no symbol of "
                f"fairseq's own"
            )
        if b"\0" in text:
            raise ValueError(f"{path}: line {number} contains a NUL byte, which is not text: correct the file")
        if not text.strip():
            blank.append(number)
        found.append((text, label))
        if not is_utf8(text):
            others.append(number)
    if blank:
        which = f"line {blank[0]} has" if len(blank) == 1 else f"line {blank[0]} and {len(blank) - 1:,} more have"
        raise ValueError(f"{path}: {which} no text: remove such lines")
    if not found:
        raise ValueError(f"{path} is empty: give lines of label TAB text")
    if all(len(label) > 2 and label[0] == label[-1] == "'" for _, label in found):
        raise ValueError(
            f"{path}: its labels are in single quotes, which count as part of labels and texts: remove them, or "
            f"write double quotes"
        )
    readable = [text.decode("utf-8", "replace") for text, _ in found]
    for note in told_form(path, readable[:FIRST_TEXTS]):
        say(note)
    returns = sum(b"\r\n" in text for text, _ in found)
    if returns:
        say(
            f"note: {returns:,} of the {len(found):,} texts of {path} have lines that end in CR LF, and the model "
            rf"learns the CR, which other texts lack: `sed 's/\r$//' {path} >OUT` removes it"
        )
    if others:
        mixed = is_partly_utf8(text for text, _ in found)
        say(
            f"note: {path} is not UTF-8 in {len(others):,} of {len(found):,} texts, first in line {others[0]}: their "
            f"bytes are taken as they are; new texts must have the same encoding, or {not_utf8(path, mixed)}"
        )
    return found


def check_first_row(path: Path, texts: Texts, others: List[Texts]) -> None:
    """Raise ValueError if the first row may be names of columns.

    It may be if no other row has its label, and its text is short, another file begins with the same row, or the other
    files lack its label.
    """
    text, label = texts[0]
    names = len(text.split()) <= 2 or any(other[0] == texts[0] for other in others)
    names = names or (bool(others) and all(label != known for other in others for _, known in other))
    if len(texts) > 2 and names and all(other != label for _, other in texts[1:]):
        raise ValueError(
            f"{path}: line 1 is {label!r} TAB {text.decode('utf-8', 'replace')!r}, a label that no other line has: if "
            f"it names the columns, give --first-line names, which leaves it out; if not, --first-line example"
        )


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the tables, hold out the splits that are not given, and write the texts."""
    files = _given(args)
    if args.first_line != "example":
        check_columns(args.train)
    parts = {split: read_texts(path, args.first_line) for split, path in files.items()}
    like = None if args.like is None else dictionaries_of(args.like)
    labels = sorted({label for _, label in parts["train"]} if like is None else own_symbols(like[1]))
    if args.first_line == "auto" and (args.like is None or parts["train"][0][1] not in labels):
        check_first_row(args.train, parts["train"], [parts[split] for split in files if split != "train"])
    if len(labels) < 2:
        raise ValueError(f"--train {args.train} has one label only, {labels[0]!r}: give at least two")
    for split in files:
        unknown = {label for _, label in parts[split]} - set(labels)
        if unknown:
            place = f"--like {args.like}" if args.like else "--train"
            raise ValueError(
                f"--{split} {files[split]} has labels that {place} lacks: {listed(sorted(unknown))} (where one names a "
                f"column, give --first-line names)"
            )
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
    OWN_TEXTS,
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
