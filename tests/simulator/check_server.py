"""Checks one library after another without loading torch and computing what is wanted each time.

    python -m tests.simulator.check_server OPERATOR SECONDS

reads lines of a library, a file and schedules, separated by tabs. Each library is checked in a child process, which may
crash and takes SECONDS of processor time at most; what it says goes to the file. Prints its exit status.
"""

import os
import resource
import subprocess
import sys
import traceback
from pathlib import Path
from types import TracebackType
from typing import List, Optional, Tuple, Type

import torch

from tests.simulator import build
from tests.simulator.cases.case import Case
from tests.simulator.check_operators import CASES, failures
from tests.support import memory


class CheckServer:
    """Such a process for one operator; a context.

    Args:
        operator: a key of CASES.
        seconds: of processor time for one library.
        sanitize: to check libraries that are built with AddressSanitizer.
    """

    def __init__(self, operator: str, seconds: int, sanitize: bool) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.simulator.check_server", operator, str(seconds)],
            cwd=build.REPOSITORY,
            env={**os.environ, **(build.sanitizer_environment() if sanitize else {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=memory.lift if sanitize else None,
        )

    def check(self, library: Path, orders: Tuple[str, ...], said: Path) -> int:
        """Exit status of the check, negative for a signal; 0 says that nothing was found. Its words are in ``said``."""
        assert self.process.stdin is not None and self.process.stdout is not None
        print(library, said, *orders, sep="\t", file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def __enter__(self) -> "CheckServer":
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.process.communicate()  # it ends with its input


def answer(cases: List[Case], seconds: int, library: str, said: str, *orders: str) -> int:
    """Check a library in a child process."""
    child = os.fork()
    if child != 0:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    with open(said, "w") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    status = 1
    try:
        torch.ops.load_library(library)
        problems = failures(cases, list(orders))
        print("\n".join(problems), flush=True)
        status = 1 if problems else 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def main() -> None:
    torch.set_num_threads(1)
    cases = list(CASES[sys.argv[1]]())
    for line in sys.stdin:
        print(answer(cases, int(sys.argv[2]), *line.rstrip("\n").split("\t")), flush=True)


if __name__ == "__main__":
    main()
