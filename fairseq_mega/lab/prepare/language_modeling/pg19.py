"""PG-19: books printed before 1919, as JSON lines, with the vocabulary of T5 (Rae et al., 2020)."""

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Tuple

from fairseq_mega.data.class_folders import listing
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit
from fairseq_mega.lab.prepare.buckets import HOST, fetch_files, list_files
from fairseq_mega.lab.prepare.checksums import Records, record_of
from fairseq_mega.lab.prepare.dataset import LANGUAGE, Dataset, Report, Sources
from fairseq_mega.lab.prepare.download import fetch_missing
from fairseq_mega.lab.prepare.language_modeling import toy_data
from fairseq_mega.lab.prepare.layouts import COUNTED_DOCUMENTS
from fairseq_mega.lab.prepare.progress import Progress, say
from fairseq_mega.lab.prepare.shared_options import need_files
from fairseq_mega.lab.prepare.text_files import open_text
from fairseq_mega.lab.prepare.word_counts import WORDS_FILE
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import copy_stream, write_json, written_whole

BUCKET = "deepmind-gutenberg"
FOLDERS = {"train": "train", "valid": "validation", "test": "test"}
BOOKS = {"train": 28_602, "valid": 50, "test": 100}
WORDS = {"train": 1_973_136_207, "valid": 3_007_061, "test": 6_966_499}  # published numbers, for perplexity per word
SYMBOLS = 32_000  # of the vocabulary
VOCABULARY = "t5-data/vocabs/cc_all.32000/sentencepiece.model"

DETAILS = f"""\
{BOOKS["train"]}, {BOOKS["valid"]} and {BOOKS["test"]} books of the public bucket {BUCKET} (11.7 GB), with the
sentencepiece vocabulary of T5 (792 KB): train.jsonl, valid.jsonl and test.jsonl for --task megalodon_pretrain, a book
in a line, {MODEL_FILE}, and {WORDS_FILE} with the published numbers of words, from which evaluations compute
perplexities per word. 12 GB beside the download, about ten minutes on one core. An interrupted download continues with
the missing books."""
REMEDY = (
    "The same command continues the download; or download the folders train, validation and test of the bucket by "
    "other means (gsutil -m cp -r gs://deepmind-gutenberg/...) and name the folder above them with --books DIR"
)
VOCABULARY_REMEDY = "T5's sentencepiece model, part of every copy of T5, can be given with --vocabulary FILE"


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of PG-19."""
    parser.add_argument(
        "--books",
        type=Path,
        metavar="DIR",
        help="folder with train, validation and test, with books as NUMBER.txt or NUMBER.txt.gz, instead of a download",
    )
    parser.add_argument("--vocabulary", type=Path, metavar="FILE", help="sentencepiece model, instead of a download")
    parser.add_argument("--host", default=HOST, metavar="URL", help="server with the buckets (default: %(default)s)")
    parser.add_argument("--limit", type=int, metavar="N", help="use the first N books of each split, by name")
    parser.add_argument("--any-count", action="store_true", help="accept numbers of books other than the published")


def check(args: argparse.Namespace) -> None:
    """Refuse missing folders and files."""
    if args.limit is not None and args.limit < 1:
        raise ValueError(f"--limit {args.limit}: give a number of books above 0")
    if args.vocabulary is not None:
        need_files("--vocabulary", args.vocabulary)
        SubwordUnit(args.vocabulary)
    if args.books is not None:
        for folder in FOLDERS.values():
            if not (args.books / folder).is_dir():
                raise ValueError(f"--books: {args.books / folder} is not a folder; it must contain books, NUMBER.txt")


def check_count(split: str, found: int, args: argparse.Namespace, origin: str) -> None:
    """Raise ValueError unless a split has the published number of books."""
    if found != BOOKS[split] and not args.any_count:
        raise ValueError(
            f"{origin}: {FOLDERS[split]} has {found:,} books, and PG-19 has {BOOKS[split]:,}: complete it, or accept "
            f"them with --any-count (no comparison with published perplexities then)"
        )


def title_of(book: Path) -> str:
    """Return the name of a book's file without its ending."""
    return re.sub(r"\.txt(\.gz)?$", "", book.name, flags=re.IGNORECASE)


def books_in(folder: Path) -> List[Path]:
    """Return the sorted books of a folder, and print which files are left out.

    Raises:
        ValueError: if the folder has a book twice, plain and packed.
    """
    found = listing(folder, (".txt", ".txt.gz"), depth=0)
    books = [folder / name for name in found.files]
    if found.left_out:
        say(f"--books: {len(books):,} books in {folder}; left out: {found.described()}")
    titles = Counter(map(title_of, books))
    twice = [book for book in books if titles[title_of(book)] > 1]
    if twice:
        raise ValueError(f"--books: {twice[0]} and {twice[1].name} are one book: remove one of them")
    return books


def books_of(split: str, args: argparse.Namespace, work: WorkFolder) -> List[Path]:
    """Return the books of a split by name, downloaded unless a folder is given."""
    folder = FOLDERS[split]
    if args.books is not None:
        found = books_in(args.books / folder)
        check_count(split, len(found), args, f"--books {args.books}")
        return found[: args.limit]
    files = list_files(args.host, BUCKET, folder, work.raw / f"{folder}.list", REMEDY)
    check_count(split, len(files), args, f"the bucket {BUCKET}")
    files = files[: args.limit]
    say(f"{folder}: {len(files):,} books")
    fetch_files(args.host, BUCKET, files, work.raw, REMEDY)
    return [work.raw / file.name for file in files]


def write_books(split: str, books: List[Path], target: Path) -> Dict[str, Any]:
    """Write books as JSON lines, and count them, their bytes in UTF-8 and their words between blanks.

    Prints the number of empty books. Raises ValueError for a book that is not text, and if no book remains.
    """
    words = size = empty = 0
    with written_whole(target) as partial, partial.open("w", encoding="utf-8") as lines:
        for book in Progress(split, "books", len(books)).follow(books):
            with open_text(book, newline="") as file:
                text = file.read()
            words, size = words + len(text.split()), size + len(text.encode())
            empty += not text.strip()
            lines.write(json.dumps({"text": text, "book": title_of(book)}, ensure_ascii=False) + "\n")
        if empty == len(books):
            raise ValueError(f"the {len(books):,} books of {FOLDERS[split]} hold no text: put books there, NUMBER.txt")
    if empty:
        say(f"{FOLDERS[split]}: {empty:,} of {len(books):,} books hold no text")
    return {"books": len(books), "bytes": size, "words_between_blanks": words}


def obtain_vocabulary(args: argparse.Namespace, work: WorkFolder) -> Tuple[Path, Records]:
    """Return the sentencepiece model, and its entry in card.json."""
    path, address = args.vocabulary, f"{args.host}/{VOCABULARY}"
    if path is None:
        path = work.raw / "t5.model"
        fetch_missing(address, path, VOCABULARY_REMEDY)
        SubwordUnit(path)
    return path, {path.name: record_of(path, **({} if args.vocabulary else {"url": address}))}


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Fetch the vocabulary and the books, small splits first, and write them as JSON lines."""
    whole = args.limit is None and not args.any_count
    work.free_space(0 if not whole else 12_500_000_000 if args.books else 24_500_000_000)
    vocabulary, inputs = obtain_vocabulary(args, work)
    with vocabulary.open("rb") as stream:
        copy_stream(stream, work.output / MODEL_FILE)
    splits = {}
    for split in ("valid", "test", "train"):
        splits[split] = write_books(split, books_of(split, args, work), work.output / f"{split}.jsonl")
    published = args.limit is None and all(counts["books"] == BOOKS[split] for split, counts in splits.items())
    words = WORDS if published else {split: counts["words_between_blanks"] for split, counts in splits.items()}
    write_json(work.output / WORDS_FILE, words)
    notes = [] if published else ["not the published books: perplexities per word divide by words between blanks"]
    origin = f"books in {args.books}" if args.books else f"the bucket {BUCKET} at {args.host}"
    return Report(origin, splits, inputs, notes)


def check_sources(folder: Path, sources: Sources) -> None:
    """Refuse to make the data without the books."""
    if not sources.download:
        raise ValueError(f"{folder} holds no PG-19: make it with fairseq-mega-prepare pg19, see its --help")


DATASET = Dataset(
    "pg19",
    LANGUAGE,
    "PG-19, books as JSON lines",
    DETAILS,
    add_options,
    check,
    make,
    toy_data.write_books,
    members={"books": tuple(f"{folder}/*" for folder in FOLDERS.values())},
    layout=COUNTED_DOCUMENTS,
    symbols=lambda args: SYMBOLS,
    check_sources=check_sources,
)
