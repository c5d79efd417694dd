"""Entry point of a script: errors in one line, interrupts, the exit status."""

import os
import signal
import sys
from typing import Callable, Optional

from fairseq_mega.cli.commands import failure

from .commands import StageError


def run_script(name: str, work: Callable[[], Optional[int]]) -> int:
    """Run a script; return its exit status, or 1 after an error message, or 130 after an interrupt."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends the running command, too
    os.environ.update(PYTHONWARNINGS="ignore", PYTHONUNBUFFERED="1")
    try:
        return work() or 0
    except (StageError, OSError, ValueError) as error:
        return failure(name, error) if str(error) else 1  # a command has printed the error
    except KeyboardInterrupt:
        print(f"{name}: interrupted; start it again to continue", file=sys.stderr)
        return 130
