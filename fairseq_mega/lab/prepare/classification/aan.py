"""Retrieval: pairs of papers of the ACL Anthology Network, linked by a citation or not (Tay et al., 2021)."""

import argparse
from pathlib import Path
from typing import Iterable, List, Optional

import numpy as np

from fairseq_mega.lab.prepare.checksums import records_of
from fairseq_mega.lab.prepare.classification import toy_data
from fairseq_mega.lab.prepare.classification.subsets import kept, note_on_limit
from fairseq_mega.lab.prepare.classification.text_output import (
    BYTE_TOKENS,
    BYTES_SEEN,
    Example,
    TextSplit,
    byte_note,
    byte_text,
    write_text_task,
)
from fairseq_mega.lab.prepare.dataset import ARENA, Dataset, Processed, Report, Scored, Sources
from fairseq_mega.lab.prepare.layouts import PAIRS_OF_TEXTS
from fairseq_mega.lab.prepare.lra_archive import Part, add_released, released_files
from fairseq_mega.lab.prepare.shared_options import add_length, add_limit, add_path, at_most_one
from fairseq_mega.lab.prepare.text_files import read_lines, read_table
from fairseq_mega.lab.prepare.work_folder import WorkFolder

FILES = {"train": "new_aan_pairs.train.tsv", "valid": "new_aan_pairs.eval.tsv", "test": "new_aan_pairs.test.tsv"}
RELEASED = Part("tsv_data", FILES)
PUBLISHED = {"train": 147_086, "valid": 18_090, "test": 17_437}
LABELS = {b"0": "0", b"0.0": "0", b"1": "1", b"1.0": "1"}

DETAILS = f"""\
{PUBLISHED["train"]}, {PUBLISHED["valid"]} and {PUBLISHED["test"]} pairs from the folder tsv_data of
https://storage.googleapis.com/long-range-arena/lra_release.gz (8 GB), whose checksum is not published.
Every byte of a text is a token; the first 4000 (--length) are kept. The first text of a pair is written to src-bin,
the second to src1-bin. 3 GB, about ten minutes on one core. Label 1: one paper cites the other."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of Retrieval."""
    add_path(parser, "--tsv-dir", f"folder with {', '.join(FILES.values())}", metavar="DIR")
    add_released(parser)
    add_length(parser)
    add_limit(parser)


def check(args: argparse.Namespace) -> None:
    """Refuse two sources, or none."""
    at_most_one(args, "--tsv-dir", "--released")
    if args.tsv_dir is None and not args.released:
        raise ValueError("--tsv-dir is missing: give the folder of the tables, or --released to fetch them")


def _split(path: Path, size: int, which: Optional[np.ndarray], length: int) -> TextSplit:
    """Yield the pairs of a table line by line: a training table is too large for the memory of some machines."""
    selected = None if which is None else set(which.tolist())

    def examples() -> Iterable[Example]:
        for number, (label, _, _, first, second) in read_table(path, 5):
            if label not in LABELS:
                raise ValueError(f"{path}: line {number} has the label {label[:20].decode('utf-8', 'replace')!r}")
            if selected is None or number - 1 in selected:
                yield Example((byte_text(first, length), byte_text(second, length)), LABELS[label])

    return TextSplit(size if selected is None else len(selected), examples)


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Read the tables twice and write the pairs."""
    folder = released_files(args, work, RELEASED) if args.released else args.tsv_dir
    paths, splits = RELEASED.paths(folder), {}
    notes: List[str] = ["the texts are read as printed in the tables, b'...' included"]
    for split, path in paths.items():
        size = sum(1 for _ in read_lines(path))  # bytes after unpacking
        if size != PUBLISHED[split]:
            notes.append(f"{path.name} has {size} pairs; {PUBLISHED[split]} are commonly reported")
        which = None if args.limit is None else kept(split, size, args.limit)
        splits[split] = _split(path, size, which, args.length)
    statistics = write_text_task(work.output, splits, BYTE_TOKENS, ("0", "1"))
    notes += [*byte_note(args.length), *note_on_limit(args.limit)]
    return Report("the tables of Long Range Arena", statistics, records_of(paths.values()), notes)


def check_sources(folder: Path, sources: Sources) -> None:
    """Refuse to fetch the tables alone."""
    if not sources.released:
        raise ValueError(
            f"{folder} holds no data, and the data of task retrieval cannot be fetched alone: make them with "
            f"'fairseq-mega-prepare aan --tsv-dir DIR --out {folder}' (see its --help), give --released to have the "
            "archive of the Long Range Arena (8 GB) fetched, or choose other tasks with --where task=LIST"
        )


DATASET = Dataset(
    "aan",
    ARENA,
    "pairs of papers as bytes (the task Retrieval)",
    DETAILS,
    add_options,
    check,
    make,
    toy_data.aan,
    members={"tsv_dir": tuple(FILES.values())},
    layout=PAIRS_OF_TEXTS,
    check_sources=check_sources,
    scored=Scored(PUBLISHED["test"]),
    released=RELEASED,
    processed=Processed("lra.zip", ("aan", "retrieval"), BYTES_SEEN),
)
