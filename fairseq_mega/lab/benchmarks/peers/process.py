"""A process of ``worker.py`` in the environment of one model."""

import contextlib
import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO, Any, Dict, Iterator

WORKER = Path(__file__).with_name("worker.py")
# glibc's settings, the same as in compat.features.cpu_process.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}


class Process:
    """A running process, and its output."""

    def __init__(self, model: str, process: "subprocess.Popen[str]", messages: IO[str]) -> None:
        self.model, self.process, self.messages = model, process, messages
        self.found = self._answer()

    def ask(self, word: str) -> Dict[str, Any]:
        """Send a word, and return the answer; raises ValueError as :func:`start` does."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # the process has ended: its messages contain the reason
            self.process.stdin.write(f"{word}\n")
            self.process.stdin.flush()
        return self._answer()

    def _answer(self) -> Dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            self.messages.seek(0)
            raise ValueError(f"{self.model} ended with exit status {status}:\n{self.messages.read()}")
        found: Dict[str, Any] = json.loads(line)
        if "fault" in found:
            raise ValueError(f"{self.model}: {found['fault']}")
        return found


@contextlib.contextmanager
def start(python: str, sizes: Dict[str, Any], keep_freed: bool = False) -> Iterator[Process]:
    """Build and warm up a model in a process that ends with the context.

    Args:
        python: interpreter of the environment.
        sizes: settings as in ``worker.py``.
        keep_freed: whether the process keeps the memory of freed tensors.

    Raises:
        OSError: if the interpreter does not start.
        ValueError: with the messages of a process that does not answer, or its reported fault.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(sizes["threads"]), **(KEEP_FREED_MEMORY if keep_freed else {})}
    with tempfile.TemporaryFile("w+", errors="replace") as messages, subprocess.Popen(
        [python, str(WORKER), json.dumps(sizes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=messages,
        text=True,
        env=environment,
    ) as process:
        try:
            yield Process(sizes["model"], process, messages)
        finally:
            process.kill()
