"""Text: film reviews of IMDb as bytes, good or bad (Long Range Arena, Tay et al., 2021)."""

import argparse
import re
from pathlib import Path
from typing import Dict, List, Tuple

import numpy as np

from fairseq_mega.lab.prepare.archives import Archive, obtain, read_tar
from fairseq_mega.lab.prepare.checksums import Records, records_of
from fairseq_mega.lab.prepare.classification import toy_data
from fairseq_mega.lab.prepare.classification.subsets import kept, note_on_limit
from fairseq_mega.lab.prepare.classification.text_output import (
    BYTE_TOKENS,
    BYTES_SEEN,
    byte_note,
    byte_split,
    write_text_task,
)
from fairseq_mega.lab.prepare.dataset import ARENA, Dataset, Processed, Report, Scored
from fairseq_mega.lab.prepare.layouts import TEXTS
from fairseq_mega.lab.prepare.shared_options import (
    add_archive,
    add_length,
    add_limit,
    add_number,
    add_path,
    at_most_one,
)
from fairseq_mega.lab.prepare.text_files import read_table
from fairseq_mega.lab.prepare.work_folder import WorkFolder

ARCHIVE = Archive(
    "http://ai.stanford.edu/~amaas/data/sentiment/aclImdb_v1.tar.gz", {"md5": "7c2ac02c03563afcf9b574c7e56c153a"}
)
LABELS = ("0", "1")
REVIEWS = 25_000  # reviews in each of the two parts
_MEMBER = re.compile(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt")
Review = Tuple[bytes, str]

DETAILS = """\
25000 reviews to train on and 25000 to test on; the benchmark validates with the test reviews, so valid and test are the
same. Download 84 MB, result 200 MB, a minute on one core. Label 0 is bad, 1 is good. Every UTF-8 byte is a token;
the first 4000 (--length) of a review are kept, with --end the last."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Text."""
    add_archive(parser, ARCHIVE.name)
    for split in ("train", "test"):
        table = "the reviews as a table instead, plain or gzip: label (0, 1) TAB rating TAB text"
        add_path(parser, f"--tsv-{split}", table)
    add_number(parser, "--held-out", 0, "hold N reviews of train out for valid; 0: valid is test", 0)
    add_length(parser)
    parser.add_argument("--end", action="store_true", help="keep the last bytes of each review, not the first")
    add_limit(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse options that exclude each other."""
    at_most_one(args, "--archive", "--tsv-train --tsv-test")


def _from_archive(path: Path) -> Dict[str, List[Review]]:
    found: Dict[str, List[Tuple[str, bytes]]] = {"train": [], "test": []}
    for name, text in read_tar(path, lambda name: _MEMBER.fullmatch(name) is not None):
        found[name.split("/")[1]].append((name, text))
    for part, reviews in found.items():
        if len(reviews) != REVIEWS:
            raise ValueError(f"{path}: expected {REVIEWS} reviews below aclImdb/{part}, found {len(reviews)}")
    return {
        part: [(text, "1" if "/pos/" in name else "0") for name, text in sorted(reviews)]
        for part, reviews in found.items()
    }


def _from_table(path: Path) -> List[Review]:
    reviews = []
    for number, (label, _, text) in read_table(path, 3):
        if label not in (b"0", b"1"):
            raise ValueError(f"{path}: line {number} has the label {label.decode('utf-8', 'replace')!r}, not 0 or 1")
        reviews.append((text, label.decode()))
    return reviews


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the reviews and write them."""
    inputs: Records
    if args.tsv_train is not None:
        files = {"train": args.tsv_train, "test": args.tsv_test}
        inputs = records_of(files.values())
        parts = {part: _from_table(path) for part, path in files.items()}
        origin = "tables of reviews (--tsv-train, --tsv-test)"
    else:
        path, inputs = obtain(ARCHIVE, args.archive, work.raw)
        parts = _from_archive(path)
        origin = f"the Large Movie Review Dataset v1.0, {ARCHIVE.url}"
    notes = ["valid and test are the same reviews: the benchmark has no validation part"]
    validated_on = "test"
    if args.held_out:
        order = np.random.default_rng(42).permutation(len(parts["train"]))
        held_out = min(args.held_out, len(order) // 4) if args.smoke else args.held_out
        train, validated_on = parts["train"], "valid"
        parts["train"] = [train[number] for number in sorted(order[held_out:])]
        parts["valid"] = [train[number] for number in sorted(order[:held_out])]
        notes = [f"valid: {held_out} reviews of train, drawn with seed 42, and no longer in it"]
    splits = {}
    for split, part in (("train", "train"), ("valid", validated_on), ("test", "test")):
        which = kept(split, len(parts[part]), args.limit, drawn_as=part)
        beginning = -args.length if args.end else 0
        reviews = [((text[beginning:],), label) for text, label in map(parts[part].__getitem__, which)]
        splits[split] = byte_split(reviews, args.length)
    statistics = write_text_task(work.output, splits, BYTE_TOKENS, LABELS)
    return Report(origin, statistics, inputs, [*notes, *byte_note(args.length, args.end), *note_on_limit(args.limit)])


DATASET = Dataset(
    "imdb",
    ARENA,
    "film reviews as bytes (the task Text)",
    DETAILS,
    add_options,
    check,
    make,
    toy_data.imdb,
    layout=TEXTS,
    scored=Scored(25_000, 31_714_156 / 25_000),  # bytes of the test reviews, at most 4,000 of each, with </s>
    processed=Processed("lra.zip", ("imdb", "text"), BYTES_SEEN),
)
