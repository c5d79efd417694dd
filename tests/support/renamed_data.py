"""A tiny training of every kind whose numbers have names, and the same data with other names for the numbers.

Some are the scales and lengths of inputs, which a new training may change.
"""

import shutil
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple

import numpy as np
import pytest

from fairseq_mega.compat.files import card
from fairseq_mega.data.card import write_settings
from fairseq_mega.data.clip_scale import ClipScale
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.sentencepieces import train_model
from tests.support import helpers, json_texts, lra_data, tiny_images, tiny_trainings

RAW = Path("processed_data") / "raw"
MASKED: List[object] = ["--task", "masked_lm", "--criterion", "masked_lm", "--arch", "mega_masked_lm_tiny"]
MASKED += ["--encoder-layers", 1, "--encoder-embed-dim", 16, "--encoder-hidden-dim", 32, "--encoder-z-dim", 8]
MASKED += ["--encoder-n-dim", 4, "--max-positions", 64, "--tokens-per-sample", 32, "--batch-size", 8]
IMAGES: List[object] = ["--task", "image-classification", "--arch", "mega_image_miniature", "--image-size", 8]
IMAGES += ["--patch-size", 4, "--image-class-num", 3, "--encoder-layers", 1, "--encoder-embed-dim", 8]
IMAGES += ["--encoder-hidden-dim", 12, "--encoder-ffn-embed-dim", 10, "--encoder-z-dim", 4, "--encoder-n-dim", 3]
IMAGES += ["--criterion", "lra_cross_entropy", "--batch-size", 8]
PIECES: List[object] = [*json_texts.TASK, *json_texts.MODEL, "--max-tokens", 64]


def swap(*paths: Path) -> None:
    """Exchange the first two tokens of dictionaries, which keep their counts."""
    for path in paths:
        lines = path.read_text().splitlines()
        path.write_text("\n".join([lines[1], lines[0], *lines[2:]]) + "\n")


def other_pieces(folder: Path) -> None:
    """Another sentencepiece model of the same size."""
    lines = [line[::-1] for text in json_texts.documents(80, 3) for line in text.split("\n")]
    train_model(lines, folder / Path(MODEL_FILE).stem, 60)


def write_clips(folder: Path) -> Path:
    """Recordings with labels."""
    tiny_trainings.WRITERS["speech"](folder)
    name_clips(folder, "low", "middle", "high")
    return folder


def name_clips(folder: Path, *labels: str, samples: int = 20, deviation: float = 1.0) -> None:
    ClipScale(labels, np.zeros(samples), np.full(samples, deviation)).save(folder / RAW)


def write_texts(folder: Path) -> Path:
    """Texts with labels, and the record of their greatest length."""
    tiny_trainings.WRITERS["text"](folder)
    record_length(folder, 64)
    return folder


def record_length(folder: Path, length: int) -> None:
    write_settings(folder, {card.LENGTH: f"the first {length} bytes"})


def shorten_clips(folder: Path) -> None:
    """Recordings of half the length."""
    lra_data.write_speech(folder, samples=10)
    name_clips(folder, "low", "middle", "high", samples=10)


def shrink_pictures(folder: Path) -> None:
    """Grey images of nine pixels."""
    for path in sorted((folder / "input").glob("*.src")):
        path.write_text("".join(" ".join(line.split()[:9]) + "\n" for line in path.read_text().splitlines()))


class Kind(NamedTuple):
    """Options of a training, how its data are written, and how other names come into them."""

    options: List[object]
    write: Callable[[Path], Any]
    rename: Callable[[Path], object]
    entry: str  # of the data card, that a refusal names


def of(training: str, rename: Callable[[Path], object], entry: str) -> Kind:
    return Kind(tiny_trainings.OPTIONS[training], tiny_trainings.WRITERS[training], rename, entry)


KINDS: Dict[str, Kind] = {
    "translator": of("translation", lambda data: swap(data / "dict.en.txt", data / "dict.de.txt"), card.SOURCE),
    "transformer": of("transformer", lambda data: swap(data / "dict.de.txt"), card.TARGET),
    "language model": of("language model", lambda data: swap(data / "dict.txt"), card.SOURCE),
    "text": of("text", lambda data: swap(data / "src-bin" / "dict.txt"), card.SOURCE),
    "text length": Kind(tiny_trainings.OPTIONS["text"], write_texts, lambda data: record_length(data, 32), card.LENGTH),
    "label": of("megalodon text", lambda data: swap(data / "label-bin" / "dict.txt"), card.LABELS),
    "recordings": Kind(
        tiny_trainings.OPTIONS["speech"],
        write_clips,
        lambda data: name_clips(data, "high", "middle", "low"),
        card.LABELS,
    ),
    "masked": Kind(MASKED, tiny_trainings.write_text, lambda data: swap(data / "dict.txt"), card.SOURCE),
    "images": Kind(
        IMAGES,
        tiny_images.write_files,
        lambda data: [(data / split / "class0").rename(data / split / "zebra") for split in tiny_images.SIZES],
        card.LABELS,
    ),
    "scale": Kind(
        tiny_trainings.OPTIONS["speech"],
        write_clips,
        lambda data: name_clips(data, "low", "middle", "high", deviation=0.1),
        card.SCALE,
    ),
    "length": Kind(tiny_trainings.OPTIONS["speech"], write_clips, shorten_clips, card.SAMPLES),
    "pixels": of("image", shrink_pictures, card.PIXELS),
    "pieces": Kind(PIECES, json_texts.write_corpus, other_pieces, card.SUBWORDS),
}


class Renamed(NamedTuple):
    """Data and the checkpoint trained on them, and those of the same data with other names."""

    kind: Kind
    data: Path
    checkpoint: Path
    other_data: Path
    other_checkpoint: Path


class AllRenamed:
    """Trainings by kind, each made when it is asked for."""

    def __init__(self, folder: Path, device_flags: List[str]) -> None:
        self.folder, self.flags = folder, device_flags
        self.made: Dict[str, Renamed] = {}

    def arguments(self, kind: Kind, data: Path, save_dir: Path, *options: object) -> List[object]:
        """Arguments of fairseq-mega-train for one update."""
        stop = ["--max-update", 1, "--save-dir", save_dir, "--no-epoch-checkpoints", "--num-workers", 0]
        return [data, *kind.options, *tiny_trainings.COMMON, *stop, "--disable-validation", *self.flags, *options]

    def __getitem__(self, name: str) -> Renamed:
        if name not in self.made:
            kind, folder = KINDS[name], self.folder / name.replace(" ", "-")
            folder.mkdir()
            data = Path(kind.write(folder / "data"))
            other = Path(shutil.copytree(data, folder / "other"))
            kind.rename(other)
            for part, save_dir in ((data, "a"), (other, "b")):
                helpers.run_fairseq("train", self.arguments(kind, part, folder / save_dir))
            checkpoints = [folder / save_dir / "checkpoint_last.pt" for save_dir in "ab"]
            self.made[name] = Renamed(kind, data, checkpoints[0], other, checkpoints[1])
        return self.made[name]


@pytest.fixture(scope="session")
def renamed(tmp_path_factory: pytest.TempPathFactory, device_flags: List[str]) -> AllRenamed:
    """A training of every kind, and one on the same data with other names for its numbers."""
    return AllRenamed(tmp_path_factory.mktemp("renamed"), device_flags)
