"""The data sets of the recipes: whether they are there, whether they can be made, and how."""

import importlib.util
from pathlib import Path
from typing import Dict, List, Sequence

from fairseq_mega.data.text_units import MODEL_FILE
from fairseq_mega.lab.prepare.classification.preflight import FILES, check_can_be_made
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.wmt16.sources import archive_urls
from fairseq_mega.lab.prepare.word_counts import WORDS_FILE
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.runs.commands import PYTHON

from .data import Data
from .image_folders import IMAGENET
from .released import Step, check_released, is_released, released_steps
from .wishes import Wishes

PREPROCESS = [*PYTHON, "fairseq_cli.preprocess"]
PREPARE = [*PYTHON, "fairseq_mega.lab.prepare"]
BINARISED = [f"{split}.{ending}" for split in ("train", "valid", "test") for ending in ("bin", "idx")]


def classification(task: str, dataset: str, options: Sequence[str] = (), made_up_options: Sequence[str] = ()) -> Data:
    """A data set of fairseq-mega-prepare, made with these options; those after it follow where data are made up."""

    released = not options  # a smaller or other form of a data set is generated

    def steps(folder: Path, wishes: Wishes) -> List[Step]:
        command = [*PREPARE, dataset, "--out", str(folder), *options]
        if released and is_released(dataset, wishes):
            return released_steps(dataset, folder, command, wishes)
        if dataset in ("listops", "pathfinder32", "pathx"):
            command += ["--workers", str(wishes.workers)]
        if dataset == "speech-commands":
            scaling = [setting.text for setting in wishes.settings if setting.key == "task.sc_scaling"]
            command += ["--scaling", *(scaling[-1:] or ["twice"])]
        if wishes.smoke:
            command += ["--smoke", *made_up_options]
        return [("prepare", command)]

    def check(folder: Path, wishes: Wishes) -> None:
        taken = released and is_released(dataset, wishes)
        if taken:
            check_released(dataset, folder, wishes)
        try:
            check_can_be_made(task, folder, wishes.smoke or taken)
        except ValueError as error:
            raise RecipeError(str(error)) from error

    return Data(task, steps, check, FILES[task])


def text(corpus: str, dataset: str, file: str) -> Data:
    """A text for language modelling, in ``folder/data-bin``; ``file`` is one of those that it is made of."""

    def steps(folder: Path, wishes: Wishes) -> List[Step]:
        command = [*PREPARE, dataset, "--out", str(folder), "--workers", str(wishes.workers)]
        return [("prepare", [*command, *["--smoke"] * wishes.smoke])]

    def check(folder: Path, wishes: Wishes) -> None:
        if folder.exists() and not folder.is_dir():
            raise RecipeError(f"the data of {corpus} cannot be made in {folder}, a file: remove it, or give --data")
        raw = folder / "raw" / file
        if not wishes.download and not wishes.smoke and not raw.exists():
            raise RecipeError(f"{raw} does not exist: put the text of {corpus} there, or leave --no-download out")

    return Data(corpus, steps, check, ["data-bin/dict.txt", *(f"data-bin/{name}" for name in BINARISED)])


def books() -> Data:
    """PG-19 as JSON lines, with its sentencepiece model."""

    def steps(folder: Path, wishes: Wishes) -> List[Step]:
        command = [*PREPARE, "pg19", "--out", str(folder)]
        if wishes.smoke:
            command += ["--smoke"]
        return [("prepare", command)]

    def check(folder: Path, wishes: Wishes) -> None:
        if not wishes.smoke and not wishes.download:
            raise RecipeError(f"{folder} holds no PG-19: make it with fairseq-mega-prepare pg19, see its --help")

    return Data("pg19", steps, check, [*(f"{split}.jsonl" for split in SPLITS), MODEL_FILE, WORDS_FILE])


def translations() -> Data:
    """WMT'16 English-German: one binarised folder serves both directions."""

    def steps(folder: Path, wishes: Wishes) -> List[Step]:
        def command(name: str, *words: object) -> Step:
            return name, [*PYTHON, "fairseq_mega.lab.prepare.wmt16", name, *map(str, words)]

        archives = wishes.archives or folder / "archives"
        raw, tokenized, bpe = folder / "raw", folder / "tokenized", folder / "bpe"
        counts = ["--counts", archives / "counts.json"] if wishes.smoke else []
        no_download = ["--no-download"] if wishes.smoke or not wishes.download else []
        made_up = [command("make-up", "--output", archives)] if wishes.smoke else []
        processes = ["--processes", wishes.workers]
        return [
            *made_up,
            command("fetch", "--archives", archives, "--record", folder / "checksums.json", *no_download),
            command("unpack", "--archives", archives, "--output", raw, *counts),
            command("tokenize", "--input", raw, "--output", tokenized, *processes),
            command(
                *("learn-bpe", "--input", tokenized, "--codes", bpe / "codes"),
                *("--merges", 300 if wishes.smoke else 32000),
            ),
            command("apply-bpe", "--input", tokenized, "--codes", bpe / "codes", "--output", bpe, *processes),
            command("clean", "--input", bpe),
            ("binarise", binarise_pairs(folder, wishes)),
        ]

    def check(folder: Path, wishes: Wishes) -> None:
        absent = [name for name in ("sacremoses", "subword_nmt") if importlib.util.find_spec(name) is None]
        if absent:
            raise RecipeError(f"WMT'16 needs {' and '.join(absent)}: run 'bash scripts/setup.sh --extras translation'")
        archives = wishes.archives or folder / "archives"
        missing = [url for url in archive_urls() if not (archives / url.rpartition("/")[2]).exists()]
        if missing and not wishes.download and not wishes.smoke:
            names = ", ".join(missing)
            raise RecipeError(f"{archives} lacks the archives {names}: fetch them, or leave --no-download out")

    files = ["data-bin/dict.en.txt", "data-bin/dict.de.txt", "raw/newstest2014.en", "tokenized/newstest2014.de"]
    files += [f"data-bin/{split}.en-de.{side}.bin" for split in ("train", "valid", "test") for side in ("en", "de")]
    return Data("wmt16", steps, check, files)


def binarise_pairs(folder: Path, wishes: Wishes) -> List[str]:
    """fairseq-preprocess of all splits, with one dictionary."""
    bpe = folder / "bpe"
    tests = ",".join(str(bpe / f"newstest{year}") for year in (2014, 2015, 2016))
    splits = ["--trainpref", str(bpe / "train.clean"), "--validpref", str(bpe / "newstest2013"), "--testpref", tests]
    words = ["--joined-dictionary", "--nwordssrc", "33000", "--nwordstgt", "33000", "--workers", str(wishes.workers)]
    pair = ["--source-lang", "en", "--target-lang", "de", "--destdir", str(folder / "data-bin")]
    return [*PREPROCESS, *pair, *splits, *words]


DATASETS: Dict[str, Data] = {
    "listops": classification("listops", "listops"),
    "imdb": classification("text", "imdb"),
    "aan": classification("retrieval", "aan"),
    "cifar10": classification("image", "cifar10"),
    "pathfinder32": classification("pathfinder", "pathfinder32"),
    "pathx": classification("pathx", "pathx"),
    "speech-commands": classification("speech", "speech-commands"),
    "miniature-listops": classification("listops", "listops", ["--min-length", "20", "--max-length", "64"]),
    "miniature-text": classification(
        "text", "imdb", ["--length", "256", "--held-out", "1000", "--limit", "20000,1000,4000"], ["--held-out", "8"]
    ),
    "miniature-image": classification("image", "cifar10", ["--side", "16", "--limit", "20000,1000,4000"]),
    "wikitext-103": text("wikitext-103", "wikitext", "wiki.train.tokens"),
    "enwik8": text("enwik8", "enwik8", "enwik8"),
    "pg19": books(),
    "imagenet": IMAGENET,
    "wmt16-en-de": translations(),
}
