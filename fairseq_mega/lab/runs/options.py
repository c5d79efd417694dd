"""Options of a script; errors are one line, with exit status 1, before anything is fetched or installed.

The module requires the standard library only: scripts/check_options.py runs it with any Python 3.
"""

import argparse
import os
import shlex
from pathlib import Path
from typing import Callable, NoReturn, Optional, Sequence

ROOT = Path(__file__).resolve().parents[3]
WIDTH = 120  # of the help


class Parser(argparse.ArgumentParser):
    """A parser with a description that is shown without changes; an error is one line, with exit status 1."""

    def __init__(self, prog: str, usage: Optional[str], description: str) -> None:
        super().__init__(
            prog=prog,
            usage=usage,
            description=description,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=WIDTH),
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """End with argparse's error."""
        self.exit(1, f"{self.prog}: error: {message}\n")


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
