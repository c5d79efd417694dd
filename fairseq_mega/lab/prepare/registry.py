"""All data sets of fairseq-mega-prepare by their names; the file of one is imported when it is looked up."""

import argparse
import importlib
from functools import lru_cache
from typing import TYPE_CHECKING, Dict, Iterator, List, Mapping, NamedTuple, NoReturn, Sequence

if TYPE_CHECKING:  # its import is that of fairseq, which --help does without
    from fairseq_mega.lab.prepare.dataset import Dataset


class Listed(NamedTuple):
    """Entry of a data set in the list of --help: heading, line, and the file with its description."""

    kind: str
    summary: str
    file: str


ARENA = "the Long Range Arena and speech"
PICTURES = "images"
LABELLED = "labelled texts and recordings"
LANGUAGE = "text for language models"
LABELS = "generated sequences with labels for language models"
PAIRS = "parallel text for translation"

LISTED: Dict[str, Listed] = {
    "listops": Listed(ARENA, "nested list operations, generated or released", "classification.texts"),
    "imdb": Listed(ARENA, "film reviews as bytes (the task Text)", "classification.texts"),
    "aan": Listed(ARENA, "pairs of papers as bytes (the task Retrieval)", "classification.texts"),
    "cifar10": Listed(ARENA, "CIFAR-10 in grey (the task Image)", "classification.images"),
    "pathfinder32": Listed(ARENA, "dashed contours, 32 x 32, generated or released", "classification.images"),
    "pathx": Listed(ARENA, "dashed contours, 128 x 128 (the task Path-X)", "classification.images"),
    "speech-commands": Listed(ARENA, "ten spoken words as samples (SC10)", "classification.sounds"),
    "imagenet": Listed(PICTURES, "ImageNet, colour images of 1,000 classes", "classification.imagenet"),
    "own-images": Listed(PICTURES, "images of your own", "classification.own"),
    "own-texts": Listed(LABELLED, "labelled texts of your own", "classification.own"),
    "recordings": Listed(LABELLED, "recordings of your own", "classification.own"),
    "enwik8": Listed(LANGUAGE, "enwik8 as bytes", "language_modeling.texts"),
    "wikitext": Listed(LANGUAGE, "WikiText-103 or WikiText-2 as words", "language_modeling.texts"),
    "gcide": Listed(
        LANGUAGE, "a dictionary of English as bytes or words, from a Debian package", "language_modeling.texts"
    ),
    "text-lm": Listed(LANGUAGE, "your own text as words, subwords or bytes", "language_modeling.texts"),
    "pg19": Listed(LANGUAGE, "PG-19, books as JSON lines", "language_modeling.documents"),
    "own-documents": Listed(LANGUAGE, "your own documents as JSON lines", "language_modeling.documents"),
    "recall": Listed(LABELS, "pairs of keys and values, of which keys are asked for", "generators.labelled"),
    "tracking": Listed(LABELS, "running sums of digits, such as the parity", "generators.labelled"),
    "needle": Listed(LABELS, "a number in a text, which is asked for at the end", "generators.labelled"),
    "wmt16": Listed(PAIRS, "WMT'16, English and German", "wmt16"),
    "own-pairs": Listed(PAIRS, "sentences of your own and their translations", "translation.parallel_text"),
    "help-pairs": Listed(PAIRS, "LibreOffice help, from Debian packages", "translation.parallel_text"),
}


class _Datasets(Mapping[str, "Dataset"]):
    """The data sets in the order of LISTED."""

    def __getitem__(self, name: str) -> "Dataset":
        module = importlib.import_module(f"{__package__}.{LISTED[name].file}")
        found: Dataset = next(dataset for dataset in module.DATASETS if dataset.name == name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(LISTED)

    def __len__(self) -> int:
        return len(LISTED)


DATASETS = _Datasets()


def listed_by_kind() -> str:
    """Return a line for each data set, below its kind."""
    lines: List[str] = []
    for kind in dict.fromkeys(listed.kind for listed in LISTED.values()):
        lines += ["", f"{kind}:"]
        lines += [f"    {name:17}{listed.summary}" for name, listed in LISTED.items() if listed.kind == kind]
    return "\n".join(lines)


class _Parser(argparse.ArgumentParser):
    """Parser of the options of one data set, which raises ValueError."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


@lru_cache(maxsize=None)
def parser_of(name: str) -> argparse.ArgumentParser:
    """Return a parser of the options of a data set, which requires none of them."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    DATASETS[name].add_all_options(parser)
    for action in parser._actions:
        action.required = False
    return parser


def has_option(name: str, option: str) -> bool:
    """Return whether a data set has an option."""
    return option in parser_of(name)._option_string_actions


def parse(name: str, words: Sequence[str]) -> argparse.Namespace:
    """Return the settings that some options give a data set.

    Raises:
        ValueError: for options that it does not accept.
    """
    return parser_of(name).parse_args(words)
