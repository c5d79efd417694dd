"""Options that several data sets have."""

import argparse
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as np

from fairseq_mega.lab.prepare.progress import SPLITS
from fairseq_mega.lab.runs.options import at_least, flag, usable_cores

SUBWORDS = 8000
SEED = 42  # of the divisions and the subsets
WRITTEN = ("out", "archives")  # the second one is a folder that archives may be downloaded to
LENGTH = 4000  # bytes of a text that are kept by default
USUAL = " (default: %(default)s)"

Option = Callable[["argparse._ActionsContainer"], object]  # adds itself to a parser


def option(*names: str, **keywords: Any) -> Option:
    """Return any option of argparse."""
    return lambda parser: parser.add_argument(*names, **keywords)


def file_option(*names: str, text: str, **others: Any) -> Option:
    """Return an option for a file, or for several with ``nargs``."""
    return option(*names, **{"type": Path, "metavar": "FILE", "help": text, **others})


def folder_option(*names: str, text: str, **others: Any) -> Option:
    """Return an option for a folder."""
    return file_option(*names, text=text, metavar="DIR", **others)


def number_option(name: str, default: Any, text: str, least: int = 1) -> Option:
    """Return an option for a whole number of at least ``least``."""
    usual = "" if default is None else USUAL
    return option(name, type=at_least(least), default=default, metavar="N", help=text + usual)


def choice(name: str, choices: Sequence[str], text: str) -> Option:
    """Return an option for one of some words, by default the first."""
    return option(name, choices=choices, default=choices[0], help=text + USUAL)


def switch(name: str, text: str) -> Option:
    """Return an option without a value."""
    return option(name, action="store_true", help=text)


def one_of(*options: Option) -> Option:
    """Return options that exclude each other."""

    def add(parser: "argparse._ActionsContainer") -> None:
        group = parser.add_mutually_exclusive_group()
        for each in options:
            each(group)

    return add


def archive(name: str) -> Option:
    """Return --archive, for a published archive of this name."""
    return file_option("--archive", text=f"your copy of {name}, instead of a download")


def seed(things: str) -> Option:
    """Return --seed."""
    return number_option("--seed", 1, f"seed of the {things}", 0)


def sources(things: str, *older: str, **others: Any) -> Tuple[Option, ...]:
    """Return --train, --valid and --test of data of one's own.

    Args:
        older: names that the first had in earlier versions, and has in card.json.
        others: of each option, where it is not a file.
    """
    dest, form = (older or ("--train",))[0].lstrip("-"), {"type": Path, "metavar": "FILE", **others}
    held_out = "(default: held out of --train)"
    return (
        option("--train", *older, dest=dest, required=True, help=f"{things} to train on", **form),
        *(option(f"--{split}", help=f"{things} of {split} {held_out}", **form) for split in ("valid", "test")),
    )


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    values = [at_least(1)(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text!r}: one number or three are needed: TRAIN,VALID,TEST")
    return values * 3 if len(values) == 1 else values


OUT = folder_option("--out", required=True, text="folder to write")
# None where it is not passed, as all that older cards lack.
SMOKE = option("--smoke", action="store_const", const=True, help="make a little invented data instead, in seconds")
KEPT_LENGTH = number_option("--length", LENGTH, "bytes to keep of the beginning of a text")
KEPT = "keep this many examples of each split (or of train, valid and test), drawn with a fixed seed"
LIMIT = option("--limit", type=parse_limit, metavar="N[,N,N]", help=KEPT)


def kept(split: str, size: int, limit: Optional[List[int]], drawn_as: Optional[str] = None) -> np.ndarray:
    """Return the indices (n,) int64 of the kept ones of ``size`` examples: all in order, or a random subset in random
    order.

    Files are often sorted by label: their first examples would all be of one class. ``drawn_as`` names another split to
    draw like: two splits of the same examples then keep the same examples, if their limits are equal.
    """
    if limit is None:
        return np.arange(size)
    order = np.random.default_rng((SEED, SPLITS.index(drawn_as or split))).permutation(size)
    return order[: limit[SPLITS.index(split)]]


def note_on_limit(limit: Optional[List[int]]) -> List[str]:
    """Return the note on --limit in card.json."""
    return [] if limit is None else [f"a random subset (seed 42) of at most {limit} examples of {', '.join(SPLITS)}"]


# The result does not depend on it.
WORKERS = option(
    "--workers", type=at_least(1), default=usable_cores(), metavar="N", help="number of processes (default: cores)"
)


def check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError naming the option of a file or folder that does not exist, but for those that are written."""
    for name, value in vars(args).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and name not in WRITTEN and not path.exists():
                raise ValueError(f"{flag(name)}: {path} does not exist")
