"""Options that several data sets have."""

import argparse
from pathlib import Path
from typing import Any, Callable, List, Mapping, Optional, Sequence

from fairseq_mega.lab.runs.options import usable_cores

LENGTH = 4000  # bytes of a text that are kept by default


def add_out(parser: argparse.ArgumentParser, required: bool) -> None:
    """Add --out."""
    usual = "" if required else " (default: a folder in outputs of the checkout, named after the data)"
    parser.add_argument("--out", type=Path, required=required, metavar="DIR", help=f"folder to write{usual}")


def add_smoke(parser: argparse.ArgumentParser) -> None:
    """Add --smoke; its value is None where it is not given."""
    toy = "make a little invented data instead, in seconds"
    parser.add_argument("--smoke", action="store_const", const=True, help=toy)


def add_length(parser: argparse.ArgumentParser, like: bool = False) -> None:
    """Add --length, for texts as bytes; ``like``: its value is None where it is not given, for that of --like."""
    usual = f"that of --like, or {LENGTH}" if like else LENGTH
    parser.add_argument(
        "--length",
        type=int,
        default=None if like else LENGTH,
        metavar="N",
        help=f"bytes to keep of the beginning of a text (default: {usual})",
    )


def check_length(args: argparse.Namespace) -> None:
    """Raise ValueError for a --length without a byte."""
    if args.length < 1:
        raise ValueError(f"--length is {args.length}: at least one byte is needed")


def add_seed(parser: argparse.ArgumentParser, things: str) -> None:
    """Add --seed."""
    parser.add_argument("--seed", type=int, default=1, metavar="N", help=f"seed of the {things} (default: %(default)s)")


def check_seed(args: argparse.Namespace) -> None:
    """Raise ValueError for a negative --seed."""
    if args.seed < 0:
        raise ValueError(f"--seed is {args.seed}: a number of at least 0 is needed")


def parse_limit(text: str) -> List[int]:
    """Parse the argument of --limit: N for every split, or N,N,N for train, valid and test."""
    parts = text.split(",")
    try:
        values = [int(part) for part in parts]
    except ValueError:
        values = []
    if len(values) not in (1, 3) or min(values) < 1:
        raise argparse.ArgumentTypeError(
            f"{text!r}: one whole number of at least 1 is needed, or three: TRAIN,VALID,TEST"
        )
    return values * 3 if len(values) == 1 else values


def add_archive(parser: argparse.ArgumentParser, name: str) -> None:
    """Add --archive, for a published archive of this name."""
    parser.add_argument("--archive", type=Path, metavar="FILE", help=f"your copy of {name}, instead of a download")


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Add --limit."""
    parser.add_argument(
        "--limit",
        type=parse_limit,
        metavar="N[,N,N]",
        help="keep this many examples of each split (or of train, valid and test), drawn with a fixed seed",
    )


def add_workers(parser: argparse.ArgumentParser) -> None:
    """Add --workers, by default one process per usable core; the result does not depend on it."""
    parser.add_argument(
        "--workers", type=at_least(1), default=usable_cores(), metavar="N", help="number of processes (default: cores)"
    )


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least ``least``."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least {least} is needed")
        return value

    return parse


def need_files(option: str, *paths: Optional[Path], remedy: str = "") -> None:
    """Raise ValueError naming the option, the first file that is missing or empty, and the remedy; None is left out."""
    for path in filter(None, paths):
        problem = ""
        if not path.exists():
            problem = "does not exist"
        elif path.is_dir():
            problem = "is a folder where a file is needed"
        elif not path.stat().st_size:
            problem = "is empty"
        if problem:
            raise ValueError(f"{option}: {path} {problem}" + (f": {remedy}" if remedy else ""))


def refuse_unused(args: argparse.Namespace, given: Sequence[str], defaults: Mapping[str, object]) -> None:
    """Raise ValueError for an option that differs from its default beside all of ``given``, which replace it."""
    if any(value_of(args, option) is None for option in given):
        return
    for option, usual in defaults.items():
        if value_of(args, option) != usual:
            names = " and ".join(given)
            raise ValueError(f"{option} {value_of(args, option)}: {names} leave nothing to hold out; omit it")


def exactly_one(args: argparse.Namespace, *groups: str) -> None:
    """Raise ValueError unless the options of at most one group are given, and then all of them.

    A group is one option or several, separated by blanks; the caller checks that one is given.
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


def check_generated_alone(
    args: argparse.Namespace, add_options: Callable[[argparse.ArgumentParser], None], *options: str
) -> None:
    """Raise ValueError for options of generated data beside data that are not generated.

    Args:
        args: of a command that generates nothing.
        add_options: adds the options with their defaults.
        options: options without an effect in this case.
    """
    parser = argparse.ArgumentParser()
    add_options(parser)
    defaults = parser.parse_args([])
    for option in options:
        if value_of(args, option) != value_of(defaults, option):
            raise ValueError(
                f"{option} {value_of(args, option)}: is for generated data, and these are the released data; leave it "
                f"out"
            )


def value_of(args: argparse.Namespace, option: str) -> Any:
    """Return the value of an option, named as on the command line."""
    return getattr(args, option.lstrip("-").replace("-", "_"))
