"""A Python that has run a program, of which copies run others: imports of torch and fairseq take seconds."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, NamedTuple, Optional

from tests.support.processes import REPOSITORY

SERVER = """
import json, os, sys, traceback
names = {"__name__": "__main__"}
exec(sys.argv.pop(1), names)
for line in sys.stdin:
    program, output = json.loads(line)
    child = os.fork()
    if child == 0:
        with open(output, "w") as file:
            os.dup2(file.fileno(), 1)
            os.dup2(file.fileno(), 2)
        status = 1
        try:
            exec(program, names)
            status = 0
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else int(end.code is not None)
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Ended(NamedTuple):
    """Status of a program that has ended, and all its output."""

    returncode: int
    output: str


class PreparedPython:
    """Such a process; a context.

    Args:
        program: that it runs; nothing that computes, or starts threads. Others see its names.
        variables: of its environment, beside this process's.
    """

    def __init__(self, program: str, variables: Optional[Dict[str, str]] = None) -> None:
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONWARNINGS": "ignore", **(variables or {})}
        command, pipe = [sys.executable, "-c", SERVER, program], subprocess.PIPE
        self.process: subprocess.Popen[str] = subprocess.Popen(
            command, env=environment, stdin=pipe, stdout=pipe, text=True
        )

    def run(self, program: str) -> Ended:
        """Run a program in a copy of the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            output = Path(folder) / "output"
            print(json.dumps([program, str(output)]), file=self.process.stdin, flush=True)
            status = self.process.stdout.readline()
            assert status, "the first program has failed, see above"
            return Ended(int(status), output.read_text(encoding="utf-8"))

    def __enter__(self) -> "PreparedPython":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], trace: Optional[TracebackType]) -> None:
        self.process.communicate()  # it ends with its input
