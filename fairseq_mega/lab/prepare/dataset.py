"""The description of a data set for fairseq-mega-prepare, and the report on making one."""

import argparse
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List

from fairseq_mega.lab.prepare.work_folder import WorkFolder


@dataclass
class Report:
    """The report on a data set that was made, for SOURCE.json.

    Attributes:
        origin: where the examples come from, in a sentence.
        splits: per split the number of examples, the labels and further counts.
        inputs: per file that was read its size and SHA-256, and its address where it was downloaded.
        notes: differences from the published data.
    """

    origin: str
    splits: Dict[str, Dict[str, Any]]
    inputs: Dict[str, Dict[str, Any]] = field(default_factory=dict)
    notes: List[str] = field(default_factory=list)


@dataclass(frozen=True)
class Dataset:
    """A data set of the command.

    Attributes:
        name: as given on the command line.
        summary: one line for the list of data sets.
        details: sizes, times and layout, for its --help.
        add_options: adds its own options to a parser.
        check: raises ValueError for options that do not go together, before anything is made.
        make: writes the data set below ``work.output``.
    """

    name: str
    summary: str
    details: str
    add_options: Callable[[argparse.ArgumentParser], None]
    check: Callable[[argparse.Namespace], None]
    make: Callable[[argparse.Namespace, WorkFolder], Report]


def exactly_one(args: argparse.Namespace, *groups: str) -> None:
    """Raise ValueError unless the options of at most one group are given, and then all of them.

    A group is one option or several, separated by blanks; none at all is left to the caller.
    """
    begun = []
    for group in groups:
        options = group.split()
        given = [option for option in options if value_of(args, option) is not None]
        missing = [option for option in options if option not in given]
        if given and missing:
            raise ValueError(f"{' and '.join(given)} needs {' and '.join(missing)}, too")
        begun += given[:1]
    if len(begun) > 1:
        raise ValueError(f"{' and '.join(begun)} name different sources: give one of them")


def value_of(args: argparse.Namespace, option: str) -> Any:
    """Return the value of an option, named as on the command line."""
    return getattr(args, option.lstrip("-").replace("-", "_"))
