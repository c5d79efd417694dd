"""Helpers that the commands share: sub-commands, and errors in one line."""

import argparse
import logging
import os
import sys
import warnings
from typing import Callable

from fairseq_mega.compat.errors import in_one_line


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


def quiet_libraries() -> None:
    """Hide deprecation warnings of fairseq, hydra and torch, unless -W is given, and fairseq's log of its iterators."""
    logging.getLogger("fairseq.tasks.fairseq_task").setLevel(logging.WARNING)  # four lines for each text that is read
    if not sys.warnoptions:
        warnings.filterwarnings("ignore", module=r"(fairseq|hydra|omegaconf|torch)\b")
        warnings.filterwarnings("ignore", message=r"\s*'config' is validated against ConfigStore")


def failure(program: str, error: Exception) -> int:
    """Print the message of an error, unless nobody reads the output any more, and return the exit status 1."""
    if isinstance(error, BrokenPipeError):  # as after ``| head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    else:
        print(f"{program}: error: {error}", file=sys.stderr)
    return 1


def exit_status(program: str, run: Callable[[], None]) -> int:
    """Return 0 after ``run``, 130 after an interrupt, and 1 after an error of the user's, whose message is printed."""
    quiet_libraries()
    try:
        run()
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        return failure(program, error)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        line = in_one_line(program, error)
        if line is None:
            raise
        print(line, file=sys.stderr)
        return 1
    return 0
