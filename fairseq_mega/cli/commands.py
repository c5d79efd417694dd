"""Helpers that the commands share: sub-commands, and errors in one line."""

import argparse
import atexit
import os
import select
import sys
import warnings
from typing import Callable


def add_described(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add a sub-command with its options; the first line of its description is its help."""
    form = argparse.RawDescriptionHelpFormatter
    first = description.splitlines()[0]
    add_options(commands.add_parser(name, help=first, description=description, formatter_class=form))


def reader_is_gone() -> bool:
    """Return whether standard output has no reader any more, as after ``| head``.

    Standard output is redirected to ``os.devnull`` then, so that Python prints no error about it.
    """
    try:
        output, poll = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError, ValueError):  # closed, or no file
        return False
    poll.register(output, 0)
    gone = any(event & select.POLLERR for _, event in poll.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return gone


atexit.register(reader_is_gone)  # before Python flushes standard output, which prints an error


def hide_deprecations() -> None:
    """Hide the deprecation warnings of fairseq, hydra and torch, half a screen at every start, unless -W is given."""
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=r"(fairseq|hydra|omegaconf|torch)\b")
        warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")


def failure(program: str, error: Exception) -> int:
    """Print the message of an error, unless nobody reads the output, and return the exit status 1."""
    if isinstance(error, UnicodeEncodeError):
        from fairseq_mega.compat.errors import describe  # a slow import

        print(f"{program}: error: {describe(error)}", file=sys.stderr)
    elif not (isinstance(error, BrokenPipeError) and reader_is_gone()):
        print(f"{program}: error: {error}", file=sys.stderr)
    return 1


def exit_status(program: str, run: Callable[[], None]) -> int:
    """Call ``run`` and return 0; after an OSError or a ValueError print its message and return 1."""
    try:
        run()
    except (OSError, ValueError) as error:
        return failure(program, error)
    return 0
