"""A tiny corpus of JSON lines and a sentencepiece model of it, and a tiny MEGALODON that is trained on them."""

import json
import random
from pathlib import Path
from typing import List, Sequence

from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.sentencepieces import train_model

TASK: List[object] = ["--task", "megalodon_pretrain", "--variant-block-multiple-min", 2]
TASK += ["--variant-block-multiple-max", 2]
MODEL: List[object] = ["--arch", "megalodon_lm_tiny", "--decoder-layers", 1, "--decoder-embed-dim", 16]
MODEL += ["--decoder-hidden-dim", 32, "--decoder-ffn-embed-dim", 32, "--decoder-z-dim", 8, "--decoder-n-dim", 4]
MODEL += ["--decoder-chunk-size", 8, "--norm-num-groups", 4, "--share-decoder-input-output-embed"]
TRAINING: List[object] = ["--max-tokens", 64, "--optimizer", "adam", "--lr", 0.01, "--no-progress-bar"]
TRAINING += ["--log-format", "json", "--log-interval", 1, "--no-epoch-checkpoints"]


def documents(count: int, seed: int) -> List[str]:
    """Texts of some lines, which repeat a few words in their order."""
    draw = random.Random(seed)
    words = ["the", "sea", "and", "wind", "were", "old", "when", "a", "ship", "came", "home", "to", "its", "quiet"]

    def line() -> str:
        first = draw.randrange(len(words))
        return " ".join(words[(first + i) % len(words)] for i in range(draw.randint(2, 12)))

    return ["\n".join(line() for _ in range(draw.randint(1, 4))) for _ in range(count)]


def write(path: Path, texts: Sequence[str]) -> None:
    """Write texts as JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text, "source": "made up"}) + "\n" for text in texts))


def write_corpus(folder: Path) -> Path:
    """Two files to train on, one to validate, one to test, and the model; returns the folder."""
    for number, count in enumerate((60, 40)):
        write(folder / "train" / f"{number}.jsonl", documents(count, number))
    for seed, split in enumerate(("valid", "test")):
        write(folder / f"{split}.jsonl", documents(12, 10 + seed))
    train_model([line for text in documents(80, 3) for line in text.split("\n")], folder / Path(MODEL_FILE).stem, 60)
    return folder
