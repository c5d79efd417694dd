"""The parts that the commands share: sub-commands whose help is their docstring, and errors told in one line."""

import argparse
import sys
from typing import Callable, Optional, Sequence


class Commands:
    """A parser of sub-commands.

    Args:
        program: the name before an error message.
        description: the beginning of the help; only its first paragraph is taken.
    """

    def __init__(self, program: str, description: Optional[str]) -> None:
        self.program = program
        self.parser = argparse.ArgumentParser(prog=program, description=(description or "").split("\n\n")[0])
        self._commands = self.parser.add_subparsers(dest="command", required=True)

    def add(self, name: str, function: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        """Add a sub-command; its options are added to the parser that is returned."""
        command: argparse.ArgumentParser = self._commands.add_parser(name, help=function.__doc__)
        command.set_defaults(function=function)
        return command

    def run(self, argv: Optional[Sequence[str]] = None) -> int:
        """Run the command line; returns the exit status (0, or 1 after an error message)."""
        args = self.parser.parse_args(argv)
        return exit_status(self.program, lambda: args.function(args))


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
