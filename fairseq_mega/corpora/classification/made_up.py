"""Small made-up stand-ins for the data of the Long Range Arena and of speech, in the files that the real ones come in.

They go through fairseq-mega-prepare like the real ones; FOLDER/options holds its options, one a line. The numbers that
come out mean nothing. Run by its path it imports numpy only, so that it starts at once.
"""

import argparse
import sys
import wave
from pathlib import Path
from typing import Callable, Dict, List, Optional

import numpy as np

WORDS = ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
TEXTS = ("good", "bad", "fine", "poor", "long", "short")
PAIRS = {"train": 32, "eval": 8, "test": 8}


def text(draw: np.random.Generator) -> str:
    """A few words."""
    return " ".join(draw.choice(TEXTS, size=draw.integers(3, 9)))


def imdb(folder: Path, draw: np.random.Generator) -> List[str]:
    """Tables of reviews: label, rating and text."""
    options = []
    for split, count in (("train", 32), ("test", 16)):
        rows = [f"{number % 2}\t{1 + 8 * (number % 2)}\t{text(draw)}\n" for number in range(count)]
        (folder / f"{split}.tsv").write_text("".join(rows))
        options += [f"--tsv-{split}", str(folder / f"{split}.tsv")]
    return options


def aan(folder: Path, draw: np.random.Generator) -> List[str]:
    """Tables of pairs: label, two numbers and two texts."""
    for split, count in PAIRS.items():
        rows = [f"{number % 2}.0\t1\t2\t{text(draw)}\t{text(draw)}\n" for number in range(count)]
        (folder / f"new_aan_pairs.{split}.tsv").write_text("".join(rows))
    return ["--tsv-dir", str(folder)]


def cifar10(folder: Path, draw: np.random.Generator) -> List[str]:
    """Arrays of grey images."""
    options = []
    for split, count in (("train", 40), ("test", 10)):
        images = draw.integers(0, 256, (count, 32, 32), dtype=np.uint8)
        np.savez(folder / f"{split}.npz", x=images, y=np.arange(count) % 10)
        options += [f"--npz-{split}", str(folder / f"{split}.npz")]
    return options


def speech_commands(folder: Path, draw: np.random.Generator) -> List[str]:
    """A folder of recordings per word, one second each."""
    for word in WORDS:
        (folder / word).mkdir(exist_ok=True)
        for number in range(7):  # the fewest that every split gets some of
            with wave.open(str(folder / word / f"{number}.wav"), "wb") as clip:
                clip.setnchannels(1)
                clip.setsampwidth(2)
                clip.setframerate(16000)
                clip.writeframes(draw.integers(-3000, 3000, 16000).astype("<i2").tobytes())
    return ["--dir", str(folder), "--any-count"]


MAKERS: Dict[str, Callable[[Path, np.random.Generator], List[str]]] = {
    "listops": lambda folder, draw: ["--count", "100", "--min-length", "10", "--max-length", "40"],
    "imdb": imdb,
    "aan": aan,
    "cifar10": cifar10,
    "pathfinder32": lambda folder, draw: ["--count", "50"],
    "pathx": lambda folder, draw: ["--count", "20"],
    "speech-commands": speech_commands,
}


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="made_up", description=__doc__)
    parser.add_argument("dataset", choices=MAKERS, help="data set of fairseq-mega-prepare")
    parser.add_argument("folder", type=Path, help="folder for everything made")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    made = MAKERS[options.dataset](options.folder, np.random.default_rng(1))
    partial = options.folder / "options.partial"
    partial.write_text("".join(f"{option}\n" for option in made))
    partial.replace(options.folder / "options")
    return 0


if __name__ == "__main__":
    sys.exit(main())
