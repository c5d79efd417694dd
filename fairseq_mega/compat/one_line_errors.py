"""Print users' errors of fairseq's own commands in one line, like the commands of this package."""

import os
import sys
import types
import typing
from pathlib import Path

COMMANDS = ("train", "hydra-train", "generate", "interactive", "eval-lm", "validate")
FULL = "HYDRA_FULL_ERROR"  # makes hydra raise an error instead of printing it


def print_in_one_line() -> None:
    """Print a user's error in one line when fairseq-train or another command of fairseq has loaded the plugin.

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
    """Return the name of fairseq's command of a script or module, None for other programs."""
    stem = path.name[: -len(path.suffix)] if path.suffix in (".py", ".exe") else path.name
    name = f"fairseq-{stem.replace('_', '-')}" if path.parent.name == "fairseq_cli" else stem
    return name if name in [f"fairseq-{command}" for command in COMMANDS] else None
