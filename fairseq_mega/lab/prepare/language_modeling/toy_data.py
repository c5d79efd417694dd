"""Toy data for the corpora of language modelling, in the same files.

Toy data pass the same stages as the real corpora. Their scores are meaningless.
"""

import gzip
import random
import zipfile
from pathlib import Path
from typing import List

from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.prepare.sentencepieces import train_model
from fairseq_mega.lab.runs.files import written_whole

SIZE = 20_000  # bytes of the toy enwik8
LINES = {"train": 400, "valid": 40, "test": 45}
NOUNS = ("river", "tower", "ship", "law", "garden", "song", "engine", "<unk>")
VERBS = ("follows", "carries", "describes", "crosses", "resembles")
ENDINGS = (".", "; it is old .", "in 1913 .", "– or so they say .", "of Straße 5 .")
BOOKS = {"train": 12, "validation": 2, "test": 3}
BOOK_WORDS = ["the", "old", "house", "by", "sea", "had", "stood", "empty", "since", "captain", "sailed", "away", "with"]


def sentence(draw: random.Random) -> str:
    """Return an English-like sentence."""
    return f"the {draw.choice(NOUNS)} {draw.choice(VERBS)} the {draw.choice(NOUNS)} {draw.choice(ENDINGS)}"


def wikitext_lines(split: str) -> List[str]:
    """Return lines in the shape of WikiText: blank lines, headings, paragraphs of several sentences."""
    draw = random.Random(split)
    lines = []
    for number in range(LINES[split]):
        if number % 5 == 0:
            lines.append(" ")
        elif number % 5 == 1:
            lines.append(f" = The {draw.choice(NOUNS)} = ")
        else:
            lines.append(f" {' '.join(sentence(draw) for _ in range(draw.randint(1, 6)))} ")
    return lines


def running_text(size: int) -> bytes:
    """Return `size` bytes of lines; the last line is incomplete, and some lines are empty."""
    draw = random.Random(size)
    text = b""
    while len(text) < size:
        text += b"\n" if draw.random() < 0.1 else f"   {sentence(draw)}\n".encode()
    return text[:size]


def write_corpus(corpus: str, output: Path) -> None:
    """Write the toy wikitext-103, wikitext-2, enwik8, gcide or own (plain text) to the file `output`."""
    with written_whole(output) as partial:
        if corpus == "gcide":
            with gzip.open(partial, "wb") as stream:
                stream.write(running_text(SIZE))
        elif corpus == "own":
            partial.write_bytes(running_text(SIZE).rpartition(b"\n")[0] + b"\n")
        else:
            with zipfile.ZipFile(partial, "w", zipfile.ZIP_DEFLATED) as container:
                if corpus == "enwik8":
                    container.writestr("enwik8", running_text(SIZE))
                for split in SPLITS if corpus != "enwik8" else ():
                    text = "".join(f"{line}\n" for line in wikitext_lines(split))
                    container.writestr(f"{corpus}/wiki.{split}.tokens", text)


def write_books(folder: Path) -> List[str]:
    """Write books and a vocabulary to a folder; return the options of pg19 that read them."""
    draw = random.Random(1)
    lines = [" ".join(draw.choices(BOOK_WORDS, k=draw.randint(4, 12))) for _ in range(400)]
    for split, count in BOOKS.items():
        (folder / split).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            text = "\n".join(draw.choices(lines, k=60))
            (folder / split / f"{number}.txt").write_text(text, encoding="utf-8")
    train_model(lines, folder / "vocabulary", 60)
    return ["--books", str(folder), "--vocabulary", str(folder / "vocabulary.model")]
