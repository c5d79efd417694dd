"""Errors of users in one line from fairseq's own commands, as from those of this package."""

import os
import sys
import types
import typing
from pathlib import Path

COMMANDS = ("train", "hydra-train", "generate", "interactive", "eval-lm", "validate")
FULL = "HYDRA_FULL_ERROR"  # makes hydra pass an error on to Python, which prints it


def print_in_one_line() -> None:
    """Print a user's error that ends fairseq-train and the like in one line, once they have read the plugin.

    FAIRSEQ_MEGA_TRACEBACK=1, and hydra's own HYDRA_FULL_ERROR=1, keep the traceback.
    """
    program = command_of(Path(sys.argv[0]))
    if program is None or FULL in os.environ:
        return
    os.environ[FULL] = "1"
    print_others = sys.excepthook

    def print_error(
        kind: typing.Type[BaseException], error: BaseException, trace: typing.Optional[types.TracebackType]
    ) -> None:
        from fairseq_mega.compat.errors import in_one_line

        line = in_one_line(program, error)
        if line is None:
            print_others(kind, error, trace)
        else:
            sys.stdout.flush()
            print(line, file=sys.stderr)

    sys.excepthook = print_error


def command_of(path: Path) -> typing.Optional[str]:
    """Name the command of fairseq that a path starts, its script or its module; None for other programs."""
    stem = path.name[: -len(path.suffix)] if path.suffix in (".py", ".exe") else path.name
    name = f"fairseq-{stem.replace('_', '-')}" if path.parent.name == "fairseq_cli" else stem
    return name if name in [f"fairseq-{command}" for command in COMMANDS] else None
