"""The user's documents for pre-training: JSON lines or plain text, held-out parts, and a vocabulary."""

import argparse
import itertools
import json
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional, Tuple

from fairseq_mega.data.class_folders import listed, listing
from fairseq_mega.data.json_lines import (
    BAD_LINES,
    ENDINGS,
    Source,
    bad_line,
    check_not_all_bad,
    text_of,
)
from fairseq_mega.data.text_cleaning import BYTE_ORDER_MARK, LINES
from fairseq_mega.data.text_units import MODEL_FILE, DocumentUnit, SubwordUnit
from fairseq_mega.lab.prepare.checksums import records_of
from fairseq_mega.lab.prepare.dataset import LANGUAGE, Dataset, Report
from fairseq_mega.lab.prepare.layouts import DOCUMENTS
from fairseq_mega.lab.prepare.options import SUBWORDS
from fairseq_mega.lab.prepare.progress import say
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.prepare.shared_options import need_files
from fairseq_mega.lab.prepare.splits import HELD_OUT, SPLITS
from fairseq_mega.lab.prepare.text_files import open_text, read_lines
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream, written_whole

TEXTS = (*ENDINGS, ".txt", ".text", ".md")  # endings of the files of a folder, also followed by .gz
LEARNT_FROM, TRIED = (
    20_000_000,
    500_000,
)  # first characters, for new and for given pieces

DETAILS = f"""\
A file {", ".join(ENDINGS)} holds JSON lines, an object with a field "text" in
each; any other file plain text, whose documents are separated by blank lines; in UTF-8, also packed with gzip (.gz). A
folder stands for all its files, also those of folders within it and of linked ones, with these endings and
{", ".join(TEXTS[len(ENDINGS) :])} (also with .gz).
Writes train.jsonl, valid.jsonl, test.jsonl and {MODEL_FILE} for --task megalodon_pretrain. One document of {HELD_OUT}
is held out for valid, and one for test. The vocabulary has a piece for every byte: no character is unknown, and no
warning names characters that the training texts lack. It is learnt from the first 20 MB in a minute or two, unless
--vocabulary is given. For texts too large to copy, make the folder by hand: train/*.jsonl,
valid.jsonl and {MODEL_FILE}."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own documents."""
    texts = "files of JSON lines or of plain text, or folders of them"
    parser.add_argument("--texts", type=Path, nargs="+", required=True, metavar="FILE", help=texts)
    parser.add_argument(
        "--text-field", default="text", metavar="NAME", help="JSON field that holds the text (default: %(default)s)"
    )
    bad = "fail at a line of JSON without a text, or skip the line (default: %(default)s)"
    parser.add_argument("--bad-lines", choices=BAD_LINES, default="error", help=bad)
    parser.add_argument(
        "--vocab-size",
        type=int,
        default=SUBWORDS,
        metavar="N",
        help="number of pieces of the vocabulary (default: %(default)s)",
    )
    parser.add_argument(
        "--vocabulary", type=Path, metavar="FILE", help="use this sentencepiece model instead of a new one"
    )
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N documents only")


def check(args: argparse.Namespace) -> None:
    """Refuse missing files, and a vocabulary without room for the bytes."""
    for folder in filter(Path.is_dir, args.texts):
        check_folder(folder)
    for path in files_of(args.texts):
        need_files("--texts", path)
    if args.vocabulary is not None:
        need_files("--vocabulary", args.vocabulary)
        SubwordUnit(args.vocabulary)
    if args.vocab_size < 300:
        raise ValueError(f"--vocab-size {args.vocab_size}: give at least 300, because every byte has a piece")
    if args.limit is not None and args.limit < HELD_OUT:
        raise ValueError(f"--limit {args.limit}: give {HELD_OUT} documents at least")


def files_of(paths: Iterable[Path]) -> List[Path]:
    """Return files; files of folders are in the order of their names."""
    return [file for path in paths for file in (files_in(path)[0] if path.is_dir() else [path])]


def files_in(folder: Path) -> Tuple[List[Path], str]:
    """Return the texts below a folder, and a description of the files that are left out."""
    found = listing(folder, [ending + packed for ending in TEXTS for packed in ("", ".gz")])
    return [folder / name for name in found.files], found.described()


def check_folder(folder: Path) -> None:
    """Raise ValueError for a folder without texts; print which files are left out."""
    texts, left_out = files_in(folder)
    if not texts:
        raise ValueError(f"--texts: the folder {folder} has no file {', '.join(TEXTS)}: give the names of its files")
    if left_out:
        say(f"note: {folder}: {len(texts):,} files are read; left out: {left_out}")


class DocumentFile:
    """The documents of a file: JSON lines by the ending of its name, else plain text.

    Args:
        path: the file, plain or packed with gzip.
        field: of a JSON object that contains the text.
        bad_lines: one of BAD_LINES.

    Attributes:
        form: kind of the file, in words.
        skipped: number of lines left out so far.
        empty: number of empty texts left out so far.
    """

    def __init__(self, path: Path, field: str, bad_lines: str) -> None:
        self.source, self.skipped, self.empty = Source(path, field, bad_lines), 0, 0
        self.form = "JSON lines" if path.name.lower().removesuffix(".gz").endswith(ENDINGS) else "plain text"

    def __iter__(self) -> Iterator[str]:
        """Yield the documents; raise ValueError for a line of JSON without a text, and for bytes that are not UTF-8."""
        texts = 0
        for text in self._lines() if self.form == "JSON lines" else self._paragraphs():
            if text is None:
                self.skipped += 1
            elif text.strip():
                texts += 1
                yield text
            else:
                self.empty += 1
        check_not_all_bad(self.source.path, texts, self.skipped)

    def _lines(self) -> Iterator[Optional[str]]:
        for number, line in read_lines(self.source.path):
            if not line.strip():
                continue
            found = text_of(line, self.source.field)
            if isinstance(found, str):
                yield found
            elif self.source.bad_lines == "skip":
                yield None
            else:
                raise ValueError(bad_line(self.source, number, found))

    def _paragraphs(self) -> Iterator[str]:
        lines: List[str] = []
        with open_text(self.source.path) as file:
            for line in file:
                line = line.lstrip(BYTE_ORDER_MARK)  # of a file that was joined to another one
                if line.strip():
                    lines.append(line)
                elif lines:
                    yield "".join(lines).rstrip("\n")
                    lines = []
        if lines:
            yield "".join(lines).rstrip("\n")


def taken(args: argparse.Namespace) -> Iterator[str]:
    """Yield all selected documents, and print the counts of each file."""
    left: Optional[int] = args.limit
    for path in files_of(args.texts):
        if left == 0:
            say(f"{path}: not read (--limit {args.limit})")
            continue
        file, count = DocumentFile(path, args.text_field, args.bad_lines), 0
        for text in itertools.islice(file, left):
            count += 1
            yield text
        left_out = f", {file.skipped:,} bad ones left out (--bad-lines skip)" if file.skipped else ""
        left_out += f", {file.empty:,} without anything to read left out" if file.empty else ""
        left_out += f", the first ones (--limit {args.limit})" if count == left else ""
        say(f"{path}: {count:,} documents of {file.form}{left_out}")
        left = None if left is None else left - count


def tell_lost(vocabulary: Path, texts: List[str]) -> None:
    """Print the losses of texts under a given model: characters without a piece, and rewritten characters."""
    unit = DocumentUnit(vocabulary)
    unknown: Counter[str] = Counter()
    for text in texts:
        pieces, numbers = (unit.processor.encode(text, out_type=kind) for kind in (str, int))
        for piece, number in zip(pieces, numbers):
            if unit.processor.is_unknown(number):
                unknown.update(piece)
    if unknown:
        count, characters = sum(unknown.values()), sum(map(len, texts))
        rare = listed([repr(character) for character, _ in unknown.most_common()], 10)
        say(f"note: {count:,} of {characters:,} characters become <unk> with --vocabulary {vocabulary}: {rare}")
    changed = sum(unit.decode(unit.encode(text)) != text for text in texts)
    if changed:
        say(
            f"note: {changed:,} of {len(texts):,} documents do not come back as they were from --vocabulary "
            f"{vocabulary}: it loses line ends, blanks, capitals or characters; without the option pieces are learnt "
            f"that lose nothing"
        )


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Write the splits, and learn the vocabulary from the first part of the training text."""
    counts: Dict[str, Dict[str, Any]] = {split: {"documents": 0, "characters": 0} for split in SPLITS}
    learnt: List[str] = []
    hashes: Dict[str, List[int]] = {split: [] for split in SPLITS}
    room = LEARNT_FROM if args.vocabulary is None else TRIED
    names = {0: "valid", 1: "test"}
    with ExitStack() as stack:
        partials = {split: stack.enter_context(written_whole(work.output / f"{split}.jsonl")) for split in SPLITS}
        files = {split: stack.enter_context(partials[split].open("w")) for split in SPLITS}
        for number, text in enumerate(taken(args)):
            split = names.get(number % HELD_OUT, "train")
            files[split].write(json.dumps({"text": text}) + "\n")
            hashes[split].append(hash(text))
            counts[split]["documents"] += 1
            counts[split]["characters"] += len(text)
            if split == "train" and room > 0:
                room -= len(text)
                learnt += [text] if args.vocabulary is not None else text.splitlines()
    if not all(part["documents"] for part in counts.values()):
        found = sum(part["documents"] for part in counts.values())
        raise ValueError(
            f"--texts hold {found} documents: at least three are needed, to train, validate and test; in plain text, "
            f"blank lines separate documents"
        )
    trained = set(hashes["train"])
    if len(trained) < len(hashes["train"]):
        say(f"note: documents repeated in train: {len(hashes['train']) - len(trained):,}")
    for split in SPLITS[1:]:
        known = sum(document in trained for document in hashes[split])
        if known:
            say(f"note: documents of {split} that are also in train, which raises the score: {known:,}")
    if args.vocabulary is None:
        prefix = work.output / Path(MODEL_FILE).stem
        counts["train"]["pieces"] = train_model(learnt, prefix, args.vocab_size, True, LINES)
    else:
        with args.vocabulary.open("rb") as stream:
            copy_stream(stream, work.output / MODEL_FILE)
        tell_lost(args.vocabulary, learnt)
    for split, part in counts.items():
        say(f"{split}: {part['documents']:,} documents, {part['characters']:,} characters")
    return Report("own documents", counts, records_of(files_of(args.texts)), [])


DATASET = Dataset(
    "own-documents",
    LANGUAGE,
    "your own documents as JSON lines",
    DETAILS,
    add_options,
    check,
    make,
    layout=DOCUMENTS,
    own=True,
)
