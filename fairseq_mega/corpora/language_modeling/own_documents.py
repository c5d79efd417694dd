"""Documents of one's own for pre-training: JSON lines or plain text, held-out parts, and a vocabulary of them."""

import argparse
import json
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

from fairseq_mega.corpora.checksums import record_of
from fairseq_mega.corpora.classification.dataset import Dataset, Report
from fairseq_mega.corpora.classification.work_folder import WorkFolder
from fairseq_mega.corpora.files import copy_stream, written_whole
from fairseq_mega.corpora.sentencepieces import train_model
from fairseq_mega.corpora.splits import SPLITS
from fairseq_mega.corpora.tables import need_files
from fairseq_mega.data.json_lines import BAD_LINES, PACKED, Source, read_texts
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit

HELD_OUT = 20  # of so many documents one is to validate, and one to test
LEARNT_FROM = 20_000_000  # characters, from the beginning of the text

DETAILS = f"""\
FILE.jsonl has a JSON object with a field "text" in each line; in other files, plain UTF-8, blank lines part documents.
Leaves train.jsonl, valid.jsonl, test.jsonl and {MODEL_FILE} for --task megalodon_pretrain. One document of {HELD_OUT}
is held out for each of valid and test. The vocabulary, which has a piece for every byte, is learnt from the first 20
MB, which takes a minute or two; with --vocabulary it is yours. Texts too large to be copied can be laid into such a
folder by hand: train/*.jsonl, valid.jsonl and {MODEL_FILE}."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of own documents."""
    parser.add_argument("--texts", type=Path, nargs="+", required=True, metavar="FILE", help="JSON lines or plain text")
    parser.add_argument("--text-field", default="text", metavar="NAME", help="field of the text (default: %(default)s)")
    bad = "what becomes of a line of FILE.jsonl without a text (default: %(default)s)"
    parser.add_argument("--bad-lines", choices=BAD_LINES, default="error", help=bad)
    parser.add_argument("--vocab-size", type=int, default=8000, metavar="N", help="pieces (default: %(default)s)")
    parser.add_argument("--vocabulary", type=Path, metavar="FILE", help="a sentencepiece model in place of a new one")
    parser.add_argument("--limit", type=int, metavar="N", help="take the first N documents only")


def check(args: argparse.Namespace) -> None:
    """Refuse files that are not there, and a vocabulary without room for the bytes."""
    for path in args.texts:
        need_files("--texts", {"text": path})
    if args.vocabulary is not None:
        need_files("--vocabulary", {"vocabulary": args.vocabulary})
        SubwordUnit(args.vocabulary)
    if args.vocab_size < 300:
        raise ValueError(f"--vocab-size {args.vocab_size}: at least 300 are needed, as every byte has a piece")
    if args.limit is not None and args.limit < HELD_OUT:
        raise ValueError(f"--limit {args.limit}: give {HELD_OUT} documents at least")


def documents_of(path: Path, field: str, bad_lines: str = "error") -> Iterator[str]:
    """Documents of a file.

    Raises:
        ValueError: for a line that is no JSON object with a text, or bytes that are no UTF-8.
    """
    if path.suffix == ".jsonl":
        source = Source(path, field, bad_lines)
        yield from (text for text in read_texts(source, 0, path.stat().st_size) if text is not None)
        return
    lines: List[str] = []
    try:
        with path.open(encoding="utf-8-sig") as file:
            for line in file:
                if line.strip():
                    lines.append(line)
                elif lines:
                    yield "".join(lines).rstrip("\n")
                    lines = []
    except UnicodeDecodeError as error:
        remedy = "unpack it" if path.suffix in PACKED else "convert it, for example with iconv"
        raise ValueError(f"{path} is no UTF-8 ({error}): {remedy}") from error
    if lines:
        yield "".join(lines).rstrip("\n")


def taken(args: argparse.Namespace) -> Iterator[str]:
    """All documents that are wanted."""
    left: Optional[int] = args.limit
    for path in args.texts:
        for text in documents_of(path, args.text_field, args.bad_lines):
            if left == 0:
                return
            left = None if left is None else left - 1
            yield text


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Write the splits, and learn the vocabulary from the first part of the training text."""
    counts: Dict[str, Dict[str, Any]] = {split: {"documents": 0, "characters": 0} for split in SPLITS}
    learnt: List[str] = []
    room = LEARNT_FROM if args.vocabulary is None else 0
    names = {0: "valid", 1: "test"}
    paths = {split: work.output / f"{split}.jsonl" for split in SPLITS}
    with written_whole(paths["train"]) as train, written_whole(paths["valid"]) as valid, written_whole(
        paths["test"]
    ) as test, train.open("w") as to_train, valid.open("w") as to_valid, test.open("w") as to_test:
        files = {"train": to_train, "valid": to_valid, "test": to_test}
        for number, text in enumerate(taken(args)):
            split = names.get(number % HELD_OUT, "train")
            files[split].write(json.dumps({"text": text}) + "\n")
            counts[split]["documents"] += 1
            counts[split]["characters"] += len(text)
            if split == "train" and room > 0:
                room -= len(text)
                learnt += text.splitlines()
    if not all(part["documents"] for part in counts.values()):
        found = sum(part["documents"] for part in counts.values())
        raise ValueError(
            f"--texts hold {found} documents: three at least are needed, to train, validate and test; blank lines "
            f"part those of plain text"
        )
    if args.vocabulary is None:
        counts["train"]["pieces"] = train_model(learnt, work.output / Path(MODEL_FILE).stem, args.vocab_size, True)
        (work.output / Path(MODEL_FILE).with_suffix(".vocab")).unlink()
    else:
        with args.vocabulary.open("rb") as stream:
            copy_stream(stream, work.output / MODEL_FILE)
    return Report("own documents", counts, {path.name: record_of(path) for path in args.texts}, [])


DATASET = Dataset("own-documents", "documents of one's own (for language models)", DETAILS, add_options, check, make)
