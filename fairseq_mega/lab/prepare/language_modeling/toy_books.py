"""A few made-up books and a tiny vocabulary in the place of PG-19's; the numbers that come out mean nothing."""

import random
from pathlib import Path
from typing import List

from fairseq_mega.lab.prepare.language_modeling.pg19 import FOLDERS
from fairseq_mega.lab.prepare.sentencepieces import train_model

BOOKS = {"train": 12, "valid": 2, "test": 3}
WORDS = ["the", "old", "house", "by", "sea", "had", "stood", "empty", "since", "captain", "sailed", "away", "with"]


def write(folder: Path) -> List[str]:
    """Write books and vocabulary; returns the options of fairseq-mega-prepare pg19 that take them."""
    draw = random.Random(1)
    lines = [" ".join(draw.choices(WORDS, k=draw.randint(4, 12))) for _ in range(400)]
    for split, count in BOOKS.items():
        for number in range(count):
            path = folder / FOLDERS[split] / f"{number}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(draw.choices(lines, k=60)), encoding="utf-8")
    train_model(lines, folder / "made_up", 60)
    return ["--books", str(folder), "--vocabulary", str(folder / "made_up.model"), "--any-count"]
