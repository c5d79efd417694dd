"""All data sets of fairseq-mega-prepare by their names."""

import argparse
from functools import lru_cache
from typing import Dict, NamedTuple, NoReturn, Sequence

from fairseq_mega.lab.prepare.classification import (
    aan,
    cifar10,
    imagenet,
    imdb,
    listops,
    own,
    pathfinder,
    speech_commands,
)
from fairseq_mega.lab.prepare.dataset import Dataset
from fairseq_mega.lab.prepare.language_modeling import own_documents, pg19, texts
from fairseq_mega.lab.prepare.translation import dataset as translation
from fairseq_mega.lab.prepare.wmt16 import dataset as wmt16

DATASETS: Dict[str, Dataset] = {
    dataset.name: dataset
    for dataset in (
        listops.DATASET,
        imdb.DATASET,
        aan.DATASET,
        cifar10.DATASET,
        pathfinder.PATHFINDER,
        pathfinder.PATHX,
        speech_commands.DATASET,
        imagenet.DATASET,
        *own.DATASETS,
        *texts.DATASETS,
        pg19.DATASET,
        own_documents.DATASET,
        wmt16.DATASET,
        *translation.DATASETS,
    )
}


class _Parser(argparse.ArgumentParser):
    """Parser of the options of one data set, which raises ValueError."""

    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


class Options(NamedTuple):
    """Options of a data set: a parser, which requires none of them, and all names, with whether one is required."""

    parser: argparse.ArgumentParser
    required: Dict[str, bool]


@lru_cache(maxsize=None)
def options_of(name: str) -> Options:
    """Return the options of a data set."""
    parser = _Parser(allow_abbrev=False, add_help=False)
    DATASETS[name].add_all_options(parser)
    required = {option: action.required for action in parser._actions for option in action.option_strings}
    for action in parser._actions:
        action.required = False
    return Options(parser, required)


def parse(name: str, words: Sequence[str]) -> argparse.Namespace:
    """Return the settings that some options give a data set.

    Raises:
        ValueError: for options that it does not accept.
    """
    return options_of(name).parser.parse_args(words)
