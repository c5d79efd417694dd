"""The files of a finished data set that a training or an evaluation reads: whether they are there, their digest."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Dict, Mapping, NamedTuple, Optional, Tuple

import numpy as np

from fairseq_mega.data.image_folder import ImageFolder, split_folder
from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.binarised import FILES
from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.prepare.work_folder import UNFINISHED
from fairseq_mega.lab.runs.fingerprints import digest, digest_of_data

DATA_BIN = "data-bin"
WORDS_FILE = "words.json"  # {"test": 6966499}: words of each split, by which the likelihood of its subwords is divided


class Examined(NamedTuple):
    """Digest that identifies a data set among others of its kind, and the examples of each class of its splits, where
    they are counted.
    """

    digest: str
    examples: Mapping[str, Mapping[str, int]] = {}


@dataclass(frozen=True)
class Layout:
    """Files in the folder of a data set."""

    files: Tuple[str, ...] = ()  # their paths; one with a * means all files that match, at least one
    tasks: Tuple[str, ...] = ()  # names of the tasks that read them

    def paths(self, folder: Path) -> Dict[str, Tuple[Path, ...]]:
        """Return the existing files of each entry; the folder may be the data-bin that fairseq-preprocess made."""
        inside = folder.name == DATA_BIN and not (folder / DATA_BIN).exists()
        names = {name: name.replace(f"{DATA_BIN}/", "") if inside else name for name in self.files}
        return {name: tuple(filter(Path.is_file, folder.glob(place))) for name, place in names.items()}

    def missing(self, folder: Path) -> Tuple[str, ...]:
        """Return the entries without a file."""
        return tuple(name for name, found in self.paths(folder).items() if not found)

    def is_there(self, folder: Path) -> bool:
        """Return whether all files exist; a work folder of fairseq-mega-prepare must be finished."""
        return not (folder / UNFINISHED).exists() and not self.missing(folder)

    def examine(self, folder: Path) -> Examined:
        """Examine existing data."""
        return Examined(digest_of_data([path for found in self.paths(folder).values() for path in found], folder))


class ImageFolders(Layout):
    """Images ``{split}/CLASS/FILE`` of the splits that are the entries."""

    def missing(self, folder: Path) -> Tuple[str, ...]:
        return tuple(split for split in self.files if not split_folder(folder, split).is_dir())

    def examine(self, folder: Path) -> Examined:
        """Count the images of each class for the digest; reading all images would take hours."""
        splits = {split: ImageFolder(split_folder(folder, split)) for split in self.files}
        counts = {split: dict(zip(f.classes, np.bincount(f.labels).tolist())) for split, f in splits.items()}
        return Examined(digest(counts), counts)


def binarised(*folders: str) -> Tuple[str, ...]:
    """Return the files of texts and labels that fairseq-preprocess made."""
    return tuple(f"{folder}/{name}" for folder in folders for name in FILES)


def parallel(source: str, target: str) -> Tuple[str, ...]:
    """Return the binarised files of a pair of languages; "*" means any."""
    sides = (source, target)
    names = [f"dict.{side}.txt" for side in sides]
    names += [f"{split}.{source}-{target}.{side}.bin" for split in SPLITS for side in sides]
    return tuple(dict.fromkeys(f"{DATA_BIN}/{name}" for name in names))


TRANSLATION = ("translation",)
TEXTS = Layout(binarised("src-bin", "label-bin"), ("lra-text",))
PAIRS_OF_TEXTS = replace(TEXTS, files=(*TEXTS.files, *binarised("src1-bin")))
IMAGES = Layout(
    tuple(name for split in SPLITS for name in (f"input/{split}.src", f"label/{split}.label")), ("lra-image",)
)
CLIPS = Layout(
    tuple(f"processed_data/raw/{split}_{kind}.pt" for split in ("train", "val", "test") for kind in ("X", "y")),
    ("speech_commands",),
)
TRAIN_AND_VALID = ImageFolders(("train", "valid"), ("image-classification",))
TEXT = Layout(binarised(DATA_BIN), ("language_modeling", "mega_language_modeling"))
LABELLED = Layout(
    tuple(
        f"{DATA_BIN}/{name}"
        for name in (*FILES, *(f"{split}.labels.{end}" for split in SPLITS for end in ("bin", "idx")))
    ),
    ("labelled_language_modeling",),
)
DOCUMENTS = Layout((*(f"{split}.jsonl" for split in SPLITS), MODEL_FILE), ("megalodon_pretrain",))
COUNTED_DOCUMENTS = replace(DOCUMENTS, files=(*DOCUMENTS.files, WORDS_FILE))


def words_of(folder: Path, subset: str) -> Optional[int]:
    """Return the number of words of a split, None where the folder has no record."""
    path = folder / WORDS_FILE
    found: Optional[int] = json.loads(path.read_text(encoding="utf-8")).get(subset) if path.is_file() else None
    return found
