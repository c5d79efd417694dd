"""PG-19: books printed before 1919, as JSON lines, with the vocabulary of T5 (Rae et al., 2020)."""

import argparse
import base64
import json
import re
import shutil
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Dict, List

from fairseq_mega.data.class_folders import listing
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit
from fairseq_mega.lab.prepare.archives import open_text
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.download import check_digests, fetch, fetch_missing, record_of
from fairseq_mega.lab.prepare.layouts import COUNTED_DOCUMENTS, WORDS_FILE
from fairseq_mega.lab.prepare.options import file_option, folder_option
from fairseq_mega.lab.prepare.progress import follow, print_line
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import write_json, written_whole

HOST = "https://storage.googleapis.com"
AT_A_TIME = 8  # downloads
BUCKET = "deepmind-gutenberg"
FOLDERS = {"train": "train", "valid": "validation", "test": "test"}
BOOKS = {"train": 28_602, "valid": 50, "test": 100}
WORDS = {"train": 1_973_136_207, "valid": 3_007_061, "test": 6_966_499}  # published numbers, for perplexity per word
VOCAB_SIZE = 32_000  # of the vocabulary
VOCABULARY = "t5-data/vocabs/cc_all.32000/sentencepiece.model"

DETAILS = f"""\
{BOOKS["train"]}, {BOOKS["valid"]} and {BOOKS["test"]} books of the public bucket {BUCKET} (11.7 GB), a book in
a line of train.jsonl, valid.jsonl and test.jsonl, with T5's sentencepiece vocabulary as {MODEL_FILE}, for --task
megalodon_pretrain; {WORDS_FILE} has the published numbers of words for perplexities per word. 12 GB beside the
download, about ten minutes on one core. An interrupted download continues with the missing books."""
REMEDY = (
    "The same command continues the download; or download the folders train, validation and test of the bucket by "
    "other means (gsutil -m cp -r gs://deepmind-gutenberg/...) and name the folder above them with --books DIR"
)
VOCABULARY_REMEDY = "T5's sentencepiece model, part of every copy of T5, can be passed with --vocabulary FILE"


def list_bucket(folder: str, scratch: Path) -> List[Dict[str, Any]]:
    """Return the name, size and MD5 of the files in a folder of the bucket, by name; ``scratch`` is for the pages."""
    found: List[Dict[str, Any]] = []
    page: Dict[str, Any] = {"nextPageToken": ""}
    while "nextPageToken" in page:
        query = {"prefix": f"{folder}/", "fields": "items(name,size,md5Hash),nextPageToken"}
        if page["nextPageToken"]:
            query["pageToken"] = page["nextPageToken"]
        fetch(f"{HOST}/storage/v1/b/{BUCKET}/o?{urllib.parse.urlencode(query)}", scratch, REMEDY)
        page = json.loads(scratch.read_text(encoding="utf-8"))
        scratch.unlink()
        found += [item for item in page.get("items", []) if not item["name"].endswith("/")]
    return sorted(found, key=lambda item: str(item["name"]))


def fetch_book(target: Path, item: Dict[str, Any]) -> Path:
    """Download a file of the bucket unless it is there, compare its checksum, and return its path."""
    path, size = target / item["name"], int(item["size"])
    if not path.is_file() or path.stat().st_size != size:
        fetch(f"{HOST}/{BUCKET}/{urllib.parse.quote(item['name'])}", path, REMEDY)
        md5 = base64.b64decode(item["md5Hash"]).hex()
        try:
            check_digests(path, {"md5": md5}, size, f"It is removed. {REMEDY}")
        except ValueError:
            path.unlink()
            raise
    return path


def books_of(split: str, args: argparse.Namespace, work: WorkFolder) -> List[Path]:
    """Return the books of a split by name, downloaded unless a folder is passed.

    Raises ValueError unless the split has the published number of books, or they are toy data.
    """
    folder = FOLDERS[split]
    if args.books is not None:
        listed = listing(args.books / folder, (".txt", ".txt.gz"), depth=0)
        found: List[Any] = [args.books / folder / name for name in listed.files]
        print_line(f"{args.books / folder}: {len(found):,} books; omitted: {listed.described() or 'none'}")
    else:
        found = list_bucket(folder, work.raw / f"{folder}.list")
    if len(found) != BOOKS[split] and not args.smoke:
        raise ValueError(
            f"{args.books or BUCKET}: {folder} has {len(found):,} books, and PG-19 has {BOOKS[split]:,}: complete it, "
            "or prepare other books as own-documents"
        )
    if args.books is not None:
        return found
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        return list(follow(pool.map(partial(fetch_book, work.raw), found), folder, "books", len(found)))


def write_books(split: str, books: List[Path], target: Path) -> Dict[str, Any]:
    """Write books as JSON lines, and count them, their bytes in UTF-8 and their words between blanks."""
    words = size = 0
    ending = re.compile(r"\.txt(\.gz)?$", re.IGNORECASE)
    with written_whole(target) as partial, partial.open("w", encoding="utf-8") as lines:
        for book in follow(books, split, "books", len(books)):
            with open_text(book, newline="") as file:
                text = file.read()
            words, size = words + len(text.split()), size + len(text.encode())
            lines.write(json.dumps({"text": text, "book": ending.sub("", book.name)}, ensure_ascii=False) + "\n")
    return {"books": len(books), "bytes": size, "words_between_blanks": words}


def make(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Fetch the vocabulary and the books, small splits first, and write them as JSON lines."""
    vocabulary, address = args.vocabulary, f"{HOST}/{VOCABULARY}"
    if vocabulary is None:
        vocabulary = work.raw / "t5.model"
        fetch_missing(address, vocabulary, VOCABULARY_REMEDY)
    SubwordUnit(vocabulary)  # raises an error before books are downloaded
    inputs = {vocabulary.name: record_of(vocabulary, **({} if args.vocabulary else {"url": address}))}
    shutil.copyfile(vocabulary, work.output / MODEL_FILE)
    splits = {}
    for split in ("valid", "test", "train"):
        splits[split] = write_books(split, books_of(split, args, work), work.output / f"{split}.jsonl")
    words = {split: counts["words_between_blanks"] for split, counts in splits.items()} if args.smoke else WORDS
    write_json(work.output / WORDS_FILE, words)
    notes = ["not the published books: perplexities per word divide by words between blanks"] if args.smoke else []
    origin = f"books in {args.books}" if args.books else f"the bucket {BUCKET} at {HOST}"
    return Report(origin, splits, inputs, notes)


DATASETS = (
    Dataset(
        "pg19",
        DETAILS,
        (
            folder_option("--books", text="folder with train, validation and test of books NUMBER.txt or .txt.gz"),
            file_option("--vocabulary", text="sentencepiece model, instead of a download"),
        ),
        make,
        reads=lambda args: {"any_count": bool(args.smoke), "host": HOST},
        members={"books": tuple(f"{folder}/*" for folder in FOLDERS.values())},
        layout=COUNTED_DOCUMENTS,
        vocab_size=lambda args: VOCAB_SIZE,
    ),
)
