"""The user's documents for pre-training: JSON lines or plain text, held-out parts, and a vocabulary."""

import argparse
import itertools
import json
import shutil
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Dict, Iterable, Iterator, List, Optional

from fairseq_mega.data.class_folders import listing
from fairseq_mega.data.json_lines import BAD_LINES, ENDINGS, Source, bad_line, text_of
from fairseq_mega.data.text_cleaning import LINES
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.archives import BYTE_ORDER_MARK, decoded_lines, read_lines
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.download import records_of
from fairseq_mega.lab.prepare.layouts import DOCUMENTS
from fairseq_mega.lab.prepare.options import SUBWORDS, USUAL, choice, file_option, number_option, option, sources
from fairseq_mega.lab.prepare.progress import HELD_OUT, SPLITS, print_line, print_overlap
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import written_whole

TEXTS = (*ENDINGS, ".txt", ".text", ".md")  # endings of the files of a folder, also followed by .gz
BAD, EMPTY = "bad lines omitted", "empty ones omitted"
LEARNT_FROM = 20_000_000  # first characters, for the subwords

DETAILS = f"""\
A file {", ".join(ENDINGS)} holds JSON lines, an object with a field "text" in
each; any other file plain text, whose documents are separated by blank lines; in UTF-8, also packed with gzip (.gz). A
folder stands for all its files with these endings and {", ".join(TEXTS[len(ENDINGS) :])}, in folders within it, too.
Writes train.jsonl, valid.jsonl, test.jsonl and {MODEL_FILE} for --task megalodon_pretrain. Without --valid and --test,
one document of {HELD_OUT} is held out for each. The vocabulary has a subword for every byte: no character is unknown.
It is learnt from the first 20 MB in a minute or two, unless --vocabulary is passed. For texts too large to copy, make
the folder by hand: train/*.jsonl, valid.jsonl and {MODEL_FILE}."""


def files_of(paths: Optional[Iterable[Path]]) -> List[Path]:
    """Return files; files of folders are in the order of their names. Print which of their files are omitted."""
    found: List[Path] = []
    for path in paths or ():
        if not path.is_dir():
            found.append(path)
            continue
        listed = listing(path, [ending + packed for ending in TEXTS for packed in ("", ".gz")])
        if not listed.files:
            raise ValueError(f"{path} has no file {', '.join(TEXTS)}: give the names of its files")
        found += [path / name for name in listed.files]
        if listed.omitted:
            print_line(f"note: {path}: {len(listed.files):,} files are read; omitted: {listed.described()}")
    return found


def documents_of(source: Source, omitted: "Counter[str]") -> Iterator[str]:
    """Yield the documents of a file, JSON lines by the ending of its name, else plain text; count those omitted.

    Raises:
        ValueError: for a line of JSON without a text, unless it is skipped, and for bytes that are not UTF-8.
    """
    is_json = source.path.name.lower().split(".gz")[0].endswith(ENDINGS)
    for text in json_texts(source, omitted) if is_json else paragraphs(source.path):
        if text.strip():
            yield text
        else:
            omitted[EMPTY] += 1


def json_texts(source: Source, omitted: "Counter[str]") -> Iterator[str]:
    """Yield the texts of a file of JSON lines."""
    for number, line in read_lines(source.path):
        found = text_of(line, source.field) if line.strip() else None
        if isinstance(found, str):
            yield found
        elif found is not None and source.bad_lines == "skip":
            omitted[BAD] += 1
        elif found is not None:
            raise ValueError(bad_line(source, number, found))


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the parts of a plain text between blank lines."""
    lines = (line.lstrip(BYTE_ORDER_MARK) for line in decoded_lines(path))  # marks of joined files, too
    for has_text, group in itertools.groupby(lines, lambda line: bool(line.strip())):
        if has_text:
            yield "".join(group).replace("\r\n", "\n").rstrip("\n")


def documents(files: Iterable[Path], args: argparse.Namespace) -> Iterator[str]:
    """Yield all documents, and print the counts of each file."""
    for path in files:
        counts: Counter[str] = Counter(dict.fromkeys(("documents", BAD, EMPTY), 0))
        for text in documents_of(Source(path, args.text_field, args.bad_lines), counts):
            counts["documents"] += 1
            yield text
        print_line(f"{path}: {', '.join(f'{count:,} {things}' for things, count in sorted(counts.items()))}")


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Write the splits, and learn the vocabulary from the first part of the training text."""
    counts: Dict[str, Dict[str, Any]] = {split: {"documents": 0, "characters": 0} for split in SPLITS}
    hashes: Dict[str, List[int]] = {split: [] for split in SPLITS}
    learnt: List[str] = []
    sources = {"train": files_of(args.texts), "valid": files_of(args.valid), "test": files_of(args.test)}
    held_out = dict(enumerate(split for split in SPLITS if not sources[split]))
    with ExitStack() as stack:
        partials = {split: stack.enter_context(written_whole(work.output / f"{split}.jsonl")) for split in SPLITS}
        files = {split: stack.enter_context(partials[split].open("w")) for split in SPLITS}
        for source, paths in sources.items():
            for number, text in enumerate(documents(paths, args)):
                split = held_out.get(number % HELD_OUT, "train") if source == "train" else source
                if split == "train" and args.vocabulary is None and counts["train"]["characters"] < LEARNT_FROM:
                    learnt += text.splitlines()
                files[split].write(json.dumps({"text": text}) + "\n")
                hashes[split].append(hash(text))
                counts[split]["documents"] += 1
                counts[split]["characters"] += len(text)
    for split, part in counts.items():
        print_line(f"{split}: {part['documents']:,} documents, {part['characters']:,} characters")
    print_overlap(hashes, "documents")
    if args.vocabulary is None:
        prefix = work.output / Path(MODEL_FILE).stem
        counts["train"]["pieces"] = train_model(learnt, prefix, args.vocab_size, True, LINES)
    else:
        shutil.copyfile(args.vocabulary, work.output / MODEL_FILE)
    return Report("own documents", counts, records_of(path for paths in sources.values() for path in paths), [])


DATASETS = (
    Dataset(
        "own-documents",
        DETAILS,
        (
            *sources("JSON lines, plain text, or folders of them,", "--texts", nargs="+"),
            option("--text-field", default="text", metavar="NAME", help=f"JSON field that holds the text{USUAL}"),
            choice("--bad-lines", BAD_LINES, "fail at a line of JSON without a text, or skip the line"),
            number_option(
                "--vocab-size", SUBWORDS, "number of subwords of the vocabulary", 300
            ),  # each byte has a subword
            file_option("--vocabulary", text="use this sentencepiece model instead of a new one"),
        ),
        make,
        layout=DOCUMENTS,
        own=True,
    ),
)
