"""Options that several data sets have."""

import argparse
from pathlib import Path
from typing import Any, List

from fairseq_mega.lab.runs.options import at_least, flag, usable_cores

WRITTEN = ("out", "archives")  # the second one is a folder that archives may be downloaded to
LENGTH = 4000  # bytes of a text that are kept by default


def add_out(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add --out."""
    usual = "" if required else " (default: a folder in outputs of the checkout, named after the data)"
    parser.add_argument("--out", type=Path, required=required, metavar="DIR", help=f"folder to write{usual}")


def add_smoke(parser: argparse.ArgumentParser) -> None:
    """Add --smoke; its value is None where it is not passed."""
    toy = "make a little invented data instead, in seconds"
    parser.add_argument("--smoke", action="store_const", const=True, help=toy)


def add_path(parser: argparse.ArgumentParser, option: str, text: str, **others: Any) -> None:
    """Add an option for a file, or for a folder if ``metavar`` is "DIR"."""
    parser.add_argument(option, **{"type": Path, "metavar": "FILE", "help": text, **others})


def add_number(parser: argparse.ArgumentParser, option: str, default: Any, text: str, least: int = 1) -> None:
    """Add an option for a whole number of at least ``least``."""
    usual = "" if default is None else " (default: %(default)s)"
    parser.add_argument(option, type=at_least(least), default=default, metavar="N", help=text + usual)


def add_length(parser: argparse.ArgumentParser) -> None:
    """Add --length, for texts as bytes."""
    add_number(parser, "--length", LENGTH, "bytes to keep of the beginning of a text")


def add_seed(parser: argparse.ArgumentParser, things: str) -> None:
    """Add --seed."""
    add_number(parser, "--seed", 1, f"seed of the {things}", 0)


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    values = [at_least(1)(part) for part in text.split(",")]
    if len(values) not in (1, 3):
        raise argparse.ArgumentTypeError(f"{text!r}: one number or three are needed: TRAIN,VALID,TEST")
    return values * 3 if len(values) == 1 else values


def add_archive(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --archive, for a published archive of this name."""
    add_path(parser, "--archive", f"your copy of {name}, instead of a download")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    keep = "keep this many examples of each split (or of train, valid and test), drawn with a fixed seed"
    parser.add_argument("--limit", type=parse_limit, metavar="N[,N,N]", help=keep)


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers, by default one process per usable core; the result does not depend on it."""
    cores = usable_cores()
    parser.add_argument(
        "--workers", type=at_least(1), default=cores, metavar="N", help="number of processes (default: cores)"
    )


def at_most_one(args: argparse.Namespace, *groups: str) -> None:
    """Raise ValueError unless the options of at most one group are passed, and then all of them.

    A group is one option or several, separated by blanks; the caller checks that one is passed.
    """
    begun = []
    for group in groups:
        options = group.split()
        given = [option for option in options if value_of(args, option) is not None]
        if given and len(given) < len(options):
            raise ValueError(f"{' and '.join(options)} are passed together")
        begun += given[:1]
    if len(begun) > 1:
        raise ValueError(f"{' and '.join(begun)} name different sources: give one of them")


def check_paths(args: argparse.Namespace) -> None:
    """Raise ValueError naming the option of a file or folder that does not exist, but for those that are written."""
    for name, value in vars(args).items():
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and name not in WRITTEN and not path.exists():
                raise ValueError(f"{flag(name)}: {path} does not exist")


def value_of(args: argparse.Namespace, option: str) -> Any:
    """Return the value of an option, named as on the command line."""
    return getattr(args, option.lstrip("-").replace("-", "_"))
