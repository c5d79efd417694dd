"""The data sets of the recipes: whether they are there, whether they can be made, and how."""

from dataclasses import replace
from pathlib import Path
from typing import Dict, List, Optional, Sequence

from fairseq_mega.data.text_units import MODEL_FILE, symbols_of_file
from fairseq_mega.lab.inspect.symbols import SYMBOLS
from fairseq_mega.lab.prepare.classification.preflight import FILES, check_can_be_made
from fairseq_mega.lab.prepare.dataset import Scored
from fairseq_mega.lab.prepare.language_modeling.published import CORPORA
from fairseq_mega.lab.prepare.language_modeling.texts import ENWIK8_SIZES
from fairseq_mega.lab.prepare.registry import DATASETS as PREPARED
from fairseq_mega.lab.prepare.splits import SPLITS
from fairseq_mega.lab.prepare.wmt16.dataset import need_packages
from fairseq_mega.lab.prepare.wmt16.sources import archive_urls
from fairseq_mega.lab.prepare.word_counts import WORDS_FILE
from fairseq_mega.lab.recipes.recipe import Recipe, RecipeError
from fairseq_mega.lab.runs.commands import PYTHON

from .choices import Choices
from .data import Data
from .image_folders import IMAGENET
from .lra_archive import check_released, is_released, released_options

PREPARE = [*PYTHON, "fairseq_mega.lab.prepare"]
FEW_BYTES, FEW_HELD_OUT = 6_000_000, 100_000  # of a text: more than is read in minutes; scoring needs time, too
FEW = ["--limit", str(FEW_BYTES), "--held-out", f"{FEW_HELD_OUT / FEW_BYTES:.6f}"]
BINARISED = [f"{split}.{ending}" for split in ("train", "valid", "test") for ending in ("bin", "idx")]


def classification(task: str, dataset: str, options: Sequence[str] = (), made_up_options: Sequence[str] = ()) -> Data:
    """Return a data set of fairseq-mega-prepare, made with these options; further ones are added for made-up data."""

    released = not options  # a smaller or other form of a data set is generated

    def command(folder: Path, choices: Choices) -> List[str]:
        words = [*PREPARE, dataset, "--out", str(folder), *options]
        if released and is_released(dataset, choices):
            return [*words, *released_options(folder, choices)]
        if dataset in ("listops", "pathfinder32", "pathx"):
            words += ["--workers", str(choices.workers)]
        if dataset == "speech-commands":
            scaling = [setting.text for setting in choices.settings if setting.key == "task.sc_scaling"]
            words += ["--scaling", *(scaling[-1:] or ["twice"])]
        if choices.smoke:
            words += ["--smoke", *made_up_options]
        return words

    def check(folder: Path, choices: Choices) -> None:
        taken = released and is_released(dataset, choices)
        if taken:
            check_released(dataset, folder, choices)
        try:
            check_can_be_made(task, folder, choices.smoke or taken)
        except ValueError as error:
            raise RecipeError(str(error)) from error

    return Data(task, command, check, FILES[task], PREPARED[dataset].scored if released else None)


def text(corpus: str, dataset: str, file: str, options: Sequence[str] = (), tokens: Optional[int] = None) -> Data:
    """A text for language modelling, in ``folder/data-bin``.

    Args:
        file: one of those that it is made of.
        tokens: of the published test part.
    """

    def command(folder: Path, choices: Choices) -> List[str]:
        words = [*PREPARE, dataset, "--out", str(folder), "--workers", str(choices.workers), *options]
        return [*words, *["--smoke"] * choices.smoke]

    def check(folder: Path, choices: Choices) -> None:
        if folder.exists() and not folder.is_dir():
            raise RecipeError(f"the data of {corpus} cannot be made in {folder}, a file: remove it, or give --data")
        raw = folder / "raw" / file
        if not choices.download and not choices.smoke and not raw.exists():
            raise RecipeError(f"{raw} does not exist: put the text of {corpus} there, or leave --no-download out")

    files = ["data-bin/dict.txt", *(f"data-bin/{name}" for name in BINARISED)]
    return Data(corpus, command, check, files, None if tokens is None else Scored(tokens))


def books() -> Data:
    """PG-19 as JSON lines, with its sentencepiece model."""

    def command(folder: Path, choices: Choices) -> List[str]:
        return [*PREPARE, "pg19", "--out", str(folder), *["--smoke"] * choices.smoke]

    def check(folder: Path, choices: Choices) -> None:
        if not choices.smoke and not choices.download:
            raise RecipeError(f"{folder} holds no PG-19: make it with fairseq-mega-prepare pg19, see its --help")

    return Data("pg19", command, check, [*(f"{split}.jsonl" for split in SPLITS), MODEL_FILE, WORDS_FILE])


def help_pairs() -> Data:
    """LibreOffice's help in English and German, cut into pieces."""

    def command(folder: Path, choices: Choices) -> List[str]:
        words = [*PREPARE, "help-pairs", "--out", str(folder), "--workers", str(choices.workers)]
        return [*words, "--vocab-size", str(SYMBOLS["libreoffice-help"]), *["--smoke"] * choices.smoke]

    def check(folder: Path, choices: Choices) -> None:
        if not choices.download and not choices.smoke:
            raise RecipeError(f"{folder} holds no pairs: make them with fairseq-mega-prepare help-pairs, see --help")

    files = ["text/test.en", "text/test.de", f"data-bin/{MODEL_FILE}", *paired_files("en", "de")]
    return Data("libreoffice-help", command, check, files)


def paired_files(source: str, target: str) -> List[str]:
    """Return the binarised files of a pair of languages, in a folder of data."""
    sides = (source, target)
    names = [f"dict.{side}.txt" for side in sides]
    names += [f"{split}.{source}-{target}.{side}.bin" for split in SPLITS for side in sides]
    return [f"data-bin/{name}" for name in names]


def translations() -> Data:
    """WMT'16 English-German: one binarised folder serves both directions."""

    def command(folder: Path, choices: Choices) -> List[str]:
        words = [*PREPARE, "wmt16", "--out", str(folder), "--workers", str(choices.workers)]
        if choices.smoke:
            return [*words, "--smoke"]
        archives = [] if choices.archives is None else ["--archives", str(choices.archives)]
        return [*words, *archives, *([] if choices.download else ["--no-download"])]

    def check(folder: Path, choices: Choices) -> None:
        try:
            need_packages()
        except ValueError as error:
            raise RecipeError(str(error)) from error
        archives = choices.archives or folder / "archives"
        missing = [url for url in archive_urls() if not (archives / url.rpartition("/")[2]).exists()]
        if missing and not choices.download and not choices.smoke:
            names = ", ".join(missing)
            raise RecipeError(f"{archives} lacks the archives {names}: fetch them, or leave --no-download out")

    files = ["raw/newstest2014.en", "tokenized/newstest2014.de", *paired_files("en", "de")]
    return Data("wmt16", command, check, files)


class OwnExamples(Data):
    """A user's data set of texts or images, with any number of classes."""

    def fit(self, recipe: Recipe, folder: Path) -> Recipe:
        """Return a recipe with the number of classes of the data."""
        images, texts = folder / "label" / "train.label", folder / "label-bin" / "dict.txt"
        classes = len(set(symbols_of_file(images if images.exists() else texts)))
        model = {**recipe.config["model"], "sentence_class_num": classes}
        return replace(recipe, config={**recipe.config, "model": model})


def own(task: str, dataset: str) -> Data:
    """Data of the user for one of the tasks; another data set is made up for a smoke run alone."""

    def check(folder: Path, choices: Choices) -> None:
        if not choices.smoke:
            raise RecipeError(
                f"{folder} holds no complete data: give yours with --data, or run fairseq-mega-prepare {dataset} "
                f"--out {folder}"
            )

    return OwnExamples(task, classification(task, dataset).command, check, FILES[task])


DATASETS: Dict[str, Data] = {
    "listops": classification("listops", "listops"),
    "imdb": classification("text", "imdb"),
    "aan": classification("retrieval", "aan"),
    "cifar10": classification("image", "cifar10"),
    "pathfinder32": classification("pathfinder", "pathfinder32"),
    "pathx": classification("pathx", "pathx"),
    "speech-commands": classification("speech", "speech-commands"),
    "miniature-listops": classification("listops", "listops", ["--min-length", "20", "--max-length", "64"]),
    "miniature-text": classification(  # the verdict of a review often stands at its end
        *("text", "imdb"),
        ["--length", "256", "--end", "--held-out", "1000", "--limit", "24000,1000,4000"],
        ["--held-out", "8"],
    ),
    "miniature-image": classification("image", "cifar10", ["--side", "16", "--limit", "20000,1000,4000"]),
    "wikitext-2": text("wikitext-2", "wikitext", "wiki.train.tokens", ["--version", "2"]),
    "wikitext-103": text(*("wikitext-103", "wikitext", "wiki.train.tokens"), tokens=CORPORA["wikitext-103"].tokens[-1]),
    "enwik8": text("enwik8", "enwik8", "enwik8", tokens=ENWIK8_SIZES[-1]),
    "gcide": text("gcide", "gcide", "gcide.txt", FEW),
    "gcide-bytes": text("gcide", "gcide", "gcide.txt", ["--limit", "8000000"]),
    "gcide-bytes-16m": text("gcide", "gcide", "gcide.txt", ["--limit", "17000000", "--held-out", "0.025"]),
    "compare-text": own("text", "imdb"),
    "compare-image": own("image", "cifar10"),
    "compare-listops": own("listops", "listops"),
    "pg19": books(),
    "imagenet": IMAGENET,
    "wmt16-en-de": translations(),
    "libreoffice-help": help_pairs(),
}
