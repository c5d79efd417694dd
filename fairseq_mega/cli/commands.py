"""Parts that the commands share: sub-commands, and errors in one line."""

import argparse
import sys
from typing import Callable


def add_described(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    description: str,
    add_options: Callable[[argparse.ArgumentParser], None],
) -> None:
    """Add a sub-command with its options, of whose description the first line is its help."""
    form = argparse.RawDescriptionHelpFormatter
    first = description.splitlines()[0]
    add_options(commands.add_parser(name, help=first, description=description, formatter_class=form))


def exit_status(program: str, run: Callable[[], None]) -> int:
    """Return 0, or 1 after the message of an OSError or a ValueError, which is for the user."""
    try:
        run()
    except (OSError, ValueError) as error:
        print(f"{program}: error: {error}", file=sys.stderr)
        return 1
    return 0
