"""Options of a script; errors are one line, with exit status 1, before anything is fetched or installed.

The module requires the standard library only: scripts/check_options.py runs it with any Python 3.
"""

import argparse
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Callable, Iterable, NoReturn, Optional, Sequence, Tuple

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 120  # of the help


class Parser(argparse.ArgumentParser):
    """The parser of a script of the folder scripts, without its positional arguments.

    Args:
        script: file name of the script.
        usage: text after it in the help.
        description: shown without changes.
    """

    def __init__(self, script: str, usage: str, description: str, epilog: Optional[str] = None) -> None:
        super().__init__(
            prog=script,
            usage=f"bash scripts/{script} {usage}",
            description=description,
            epilog=epilog,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
            allow_abbrev=False,
            add_help=False,
        )

    def read(self, arguments: Optional[Sequence[str]]) -> argparse.Namespace:
        """Read the command line: known options only, each with a value unless it is a switch."""
        self.add_argument("--help", action="help", help="this text")
        self.add_argument("-h", action="help", help=argparse.SUPPRESS)
        options, unknown = self.parse_known_args(arguments)
        if unknown:
            self.die(f"unknown option '{unknown[0]}'; see --help")
        for name, value in vars(options).items():
            if value == "":
                self.die(f"{flag(name)} needs a value; see --help")
        return options

    def error(self, message: str) -> NoReturn:
        """End with argparse's error."""
        found = re.match(r"argument (--\S+): expected one argument", message)
        self.die(f"{found[1]} needs a value; see --help" if found else f"{message}; see --help")

    def die(self, message: str) -> NoReturn:
        """End with an error."""
        print(f"{self.prog}: error: {message}", file=sys.stderr)
        raise SystemExit(1)

    def one_of(self, name: str, value: str, choices: Iterable[str]) -> None:
        """Check a choice."""
        if value not in choices:
            self.die(f"{flag(name)} is '{value}': choose from {', '.join(choices)}")

    def file(self, path: Optional[str], remedy: str) -> None:
        """Check that the file of an option exists and is not empty."""
        if path is None:
            return
        if not os.path.exists(path):
            self.die(f"{path} does not exist: {remedy}")
        if os.path.isdir(path):
            self.die(f"{path} is a folder where a file is needed: {remedy}")
        if os.path.getsize(path) == 0:
            self.die(f"{path} is empty: {remedy}")


def add_environment(parser: "argparse._ActionsContainer") -> None:
    """Add the options on the environment."""
    default = "$FAIRSEQ_MEGA_VENV, else .venv of the checkout"
    parser.add_argument("--venv", metavar="DIR", help=f"virtual environment (default: {default})")
    parser.add_argument(
        "--skip-setup", action="store_true", help="use the environment as it is, without scripts/setup.sh"
    )


def at_least(least: int) -> Callable[[str], int]:
    """Return a parser of whole numbers of at least ``least``, for argparse."""

    def parse(text: str) -> int:
        value = int(text) if text.isascii() and text.isdigit() else -1
        if value < least:
            raise argparse.ArgumentTypeError(f"{text!r}: a whole number of at least {least} is needed")
        return value

    return parse


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split_assignment(option: str, text: str, example: str = "") -> Tuple[str, str]:
    """Split the value NAME=VALUE of an option.

    Raises:
        ValueError: if a part is missing, with an example.
    """
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError(f"{option} {text!r}: write it as NAME=VALUE" + (example and f", for instance {example}"))
    return name, value


def flag(name: str) -> str:
    """Return the option that sets an attribute."""
    return "--" + name.replace("_", "-")


def for_script(options: argparse.Namespace, words: Optional[Sequence[str]] = None) -> str:
    """Return the options that the script requires before the environment exists, as assignments of the shell.

    Args:
        words: of the module that the script runs; by default those of the script.
    """
    own = "" if words is None else f" words=({shlex.join(words)})"
    return f"venv={shlex.quote(options.venv or '')} skip_setup={'yes' if options.skip_setup else ''}{own}"
