"""Documents for pre-training, as JSON lines with a vocabulary: PG-19 (Rae et al., 2020), and the user's own."""

import argparse
import base64
import itertools
import json
import shutil
import urllib.parse
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Dict, Iterator, List

from fairseq_mega.data.class_folders import listing
from fairseq_mega.data.json_lines import ENDINGS, Source, bad_line, text_of
from fairseq_mega.data.text_cleaning import LINES
from fairseq_mega.data.text_units import MODEL_FILE, SubwordUnit
from fairseq_mega.lab.prepare.archives import BYTE_ORDER_MARK, decoded_lines, read_lines
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.download import check_digests, fetch, fetch_missing, record_of, records_of
from fairseq_mega.lab.prepare.layouts import COUNTED_DOCUMENTS, DOCUMENTS, WORDS_FILE
from fairseq_mega.lab.prepare.options import SUBWORDS, file_option, folder_option, number_option, sources
from fairseq_mega.lab.prepare.progress import HELD_OUT, SPLITS, follow, print_line, print_overlap
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from fairseq_mega.lab.runs.files import write_json, written_whole

# --- PG-19: books printed before 1919, with the vocabulary of T5

HOST = "https://storage.googleapis.com"
AT_A_TIME = 8  # downloads
BUCKET = "deepmind-gutenberg"
FOLDERS = {"train": "train", "valid": "validation", "test": "test"}
BOOKS = {"train": 28_602, "valid": 50, "test": 100}
WORDS = {"train": 1_973_136_207, "valid": 3_007_061, "test": 6_966_499}  # published numbers, for perplexity per word
VOCAB_SIZE = 32_000  # of the vocabulary
VOCABULARY = "t5-data/vocabs/cc_all.32000/sentencepiece.model"

PG19 = f"""\
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
        listed = listing(args.books / folder, (".txt",), depth=0)
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
    with written_whole(target) as partial, partial.open("w", encoding="utf-8") as lines:
        for book in follow(books, split, "books", len(books)):
            text = "".join(decoded_lines(book))
            words, size = words + len(text.split()), size + len(text.encode())
            lines.write(json.dumps({"text": text, "book": book.stem}, ensure_ascii=False) + "\n")
    return {"books": len(books), "bytes": size, "words_between_blanks": words}


def make_pg19(args: argparse.Namespace, work: WorkFolder) -> Report:
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


# --- The user's documents

LEARNT_FROM = 20_000_000  # first characters, for the subwords

OWN = f"""\
A file {", ".join(ENDINGS)} holds JSON lines, an object with a field "text" in
each; any other file plain text in UTF-8, whose documents are separated by blank lines. Writes train.jsonl,
valid.jsonl, test.jsonl and {MODEL_FILE} for --task megalodon_pretrain. Without --valid and --test, one document of
{HELD_OUT} is held out for each. The vocabulary has a subword for every byte: no character is unknown. It is learnt from
the first 20 MB in a minute or two, unless --vocabulary is passed. For texts too large to copy, make the folder by hand:
train/*.jsonl, valid.jsonl and {MODEL_FILE}."""


def documents_of(path: Path) -> Iterator[str]:
    """Yield the documents of a file but for empty ones, JSON lines by the ending of its name, else plain text.

    Raises:
        ValueError: for a line of JSON without a text, and for bytes that are not UTF-8.
    """
    found = json_texts(path) if path.name.lower().endswith(ENDINGS) else paragraphs(path)
    return filter(str.strip, found)


def json_texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file of JSON lines."""
    source = Source(path)
    for number, line in read_lines(path):
        text = text_of(line, source.field) if line.strip() else ""
        if not isinstance(text, str):
            raise ValueError(bad_line(source, number, text))
        yield text


def paragraphs(path: Path) -> Iterator[str]:
    """Yield the parts of a plain text between blank lines."""
    lines = (line.lstrip(BYTE_ORDER_MARK) for line in decoded_lines(path))  # marks of joined files, too
    for has_text, group in itertools.groupby(lines, lambda line: bool(line.strip())):
        if has_text:
            yield "".join(group).replace("\r\n", "\n").rstrip("\n")


def make_own(args: argparse.Namespace, work: WorkFolder) -> Report:
    """Write the splits, and learn the vocabulary from the first part of the training text."""
    counts: Dict[str, Dict[str, Any]] = {split: {"documents": 0, "characters": 0} for split in SPLITS}
    hashes: Dict[str, List[int]] = {split: [] for split in SPLITS}
    learnt: List[str] = []
    given = {"train": args.texts, "valid": args.valid or [], "test": args.test or []}
    held_out = dict(enumerate(split for split in SPLITS if not given[split]))
    with ExitStack() as stack:
        partials = {split: stack.enter_context(written_whole(work.output / f"{split}.jsonl")) for split in SPLITS}
        files = {split: stack.enter_context(partials[split].open("w")) for split in SPLITS}
        for source, paths in given.items():
            for number, text in enumerate(itertools.chain.from_iterable(map(documents_of, paths))):
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
    return Report("own documents", counts, records_of(itertools.chain.from_iterable(given.values())))


DATASETS = (
    Dataset(
        "pg19",
        PG19,
        (
            folder_option("--books", text="folder with train, validation and test of books NUMBER.txt"),
            file_option("--vocabulary", text="sentencepiece model, instead of a download"),
        ),
        make_pg19,
        reads=lambda args: {"any_count": bool(args.smoke), "host": HOST},
        members={"books": tuple(f"{folder}/*" for folder in FOLDERS.values())},
        layout=COUNTED_DOCUMENTS,
        vocab_size=lambda args: VOCAB_SIZE,
    ),
    Dataset(
        "own-documents",
        OWN,
        (
            *sources("JSON lines or plain text", "--texts", nargs="+"),
            # Each byte has a subword.
            number_option("--vocab-size", SUBWORDS, "number of subwords of the vocabulary", 300),
            file_option("--vocabulary", text="use this sentencepiece model instead of a new one"),
        ),
        make_own,
        # Settings that earlier versions had options for.
        reads=lambda args: {"bad_lines": "error", "text_field": "text"},
        layout=DOCUMENTS,
        own=True,
    ),
)
