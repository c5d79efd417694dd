"""Tiny data of the classification tasks, in the layouts of the published archives."""

import random
from pathlib import Path
from typing import Dict, List, Tuple

import torch

from tests.support.helpers import run_fairseq

SIZES = {"train": 60, "valid": 21, "test": 29}
CLASSES = 3


def write_texts(folder, pairs=False):
    """Texts of up to 12 words, among them one that gives the class away; binarised."""
    draw = random.Random(5)
    parts = {"src": "src-bin", "label": "label-bin", **({"src1": "src1-bin"} if pairs else {})}
    written: Dict[Tuple[str, str], List[str]] = {(part, split): [] for part in parts for split in SIZES}
    for split, count in SIZES.items():
        for _ in range(count):
            label = draw.choice([0, 1, 1, 2, 2, 2])
            words = [f"w{draw.randrange(5)}" for _ in range(draw.randint(1, 12))]
            words[draw.randrange(len(words))] = f"x{label}"
            written["src", split].append(" ".join(words))
            written["label", split].append(str(label))
            if pairs:
                written["src1", split].append(" ".join(words[::-1][:4]))
    for (part, split), lines in written.items():
        (folder / f"{split}.{part}").write_text("".join(f"{line}\n" for line in lines))
    for part, name in parts.items():
        arguments = ["--only-source", "--destdir", folder / name]
        for split in SIZES:
            arguments += [f"--{split}pref", f"{folder / split}.{part}"]
        if part == "src1":
            arguments += ["--srcdict", folder / "src-bin" / "dict.txt"]
        run_fairseq("preprocess", arguments)
    return folder


def lines(folder, split):
    """Texts and labels of a split."""
    return tuple((folder / f"{split}.{part}").read_text().splitlines() for part in ("src", "label"))


def write_images(folder, pixels=16):
    """Images whose brightness is their class."""
    draw = random.Random(6)
    for name in ("input", "label"):
        (folder / name).mkdir(parents=True)
    for split, count in SIZES.items():
        labels = [draw.randrange(CLASSES) for _ in range(count)]
        rows = [[80 * label + draw.randrange(60) for _ in range(pixels)] for label in labels]
        (folder / "input" / f"{split}.src").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
        (folder / "label" / f"{split}.label").write_text("".join(f"{label}\n" for label in labels))
    return folder


def write_speech(folder, samples=20):
    """Clips whose mean is their class."""
    raw = Path(folder) / "processed_data" / "raw"
    raw.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(7)
    for split, count in (("train", 60), ("val", 21), ("test", 29)):
        labels = torch.randint(0, CLASSES, (count,), generator=generator)
        clips = labels[:, None, None] - 1.0 + 0.3 * torch.randn(count, samples, 1, generator=generator)
        torch.save(clips, raw / f"{split}_X.pt")
        torch.save(labels, raw / f"{split}_y.pt")
    return folder
