"""A pseudo-terminal, on which a command runs as where a person types."""

import os
import pty
import select
import subprocess
from contextlib import suppress
from typing import Sequence

SECONDS = 120.0  # without a sign of the command


def dialogue(command: Sequence[object], *typed: str, prompt: str = "\n> ") -> str:
    """Run a command, type one text whenever the terminal ends with the prompt, and return what the terminal shows."""
    ours, its = pty.openpty()
    environment = {**os.environ, "TERM": "dumb"}  # without control sequences
    environment.pop("PYTHONWARNINGS", None)  # fairseq sets it where a test before had workers
    process = subprocess.Popen([*map(str, command)], stdin=its, stdout=its, stderr=its, env=environment)
    os.close(its)
    left, shown = list(typed), b""
    with suppress(OSError):  # the process has ended
        while select.select([ours], [], [], SECONDS)[0]:
            shown = (shown + os.read(ours, 1 << 16)).replace(b"\r\n", b"\n")
            if left and shown.endswith(prompt.encode()):
                os.write(ours, left.pop(0).encode())
    process.kill()
    os.close(ours)
    assert process.wait() == 0 and not left, shown.decode()
    return shown.decode()
