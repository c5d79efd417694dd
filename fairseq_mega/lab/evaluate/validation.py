"""Scores of fairseq-mega-validate on a split: the numbers of scored and of correct examples."""

import contextlib
import io
import logging
import re
import sys
import time
from pathlib import Path
from typing import Callable, Sequence, TextIO, Tuple

from fairseq_mega.lab.runs.log_progress import parse_statistics

Validate = Callable[[Sequence[str]], int]  # runs fairseq-mega-validate with arguments; returns the exit status
INTERVAL = 20.0  # seconds between lines on the progress
_CORRECT = re.compile(r"(\d+) of (\d+)")


class Listener(io.TextIOBase):
    """Stream of fairseq-validate's output, written to a file; it finds the result and prints the progress."""

    def __init__(self, log: TextIO, split: str = "test") -> None:
        self.correct = ""
        self.split = split
        self.scored = 0
        self._log, self._line = log, ""
        self._shown = time.monotonic()

    def write(self, text: str) -> int:
        self._log.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            found = parse_statistics(line)
            self.correct = found.get(f"{self.split}_correct", self.correct)
            self.scored += int(found.get("nsentences", 0))
        if time.monotonic() - self._shown >= INTERVAL:
            self._shown = time.monotonic()
            print(f"  {self.scored:,} examples scored", file=sys.stderr)
        return len(text)


def score_split(validate: Validate, arguments: Sequence[str], log_file: Path, split: str) -> Tuple[int, int]:
    """Score a split; return the numbers of correct and of scored examples.

    Raises:
        RuntimeError: if the command failed or scored nothing; its output is in ``log_file``.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    options = ["--valid-subset", split, "--no-progress-bar", "--log-format", "json", "--log-interval", "1"]
    with open(log_file, "w", encoding="utf-8") as log:
        listener = Listener(log, split)
        try:
            # Not a logging handler: the command removes all handlers, and logs to standard output.
            root.handlers[:] = []
            with contextlib.redirect_stdout(listener):
                status = validate([*arguments, *options])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    match = _CORRECT.fullmatch(listener.correct)
    if status != 0 or match is None or int(match[2]) == 0:
        raise RuntimeError(f"fairseq-mega-validate failed (exit status {status}); its output is in {log_file}")
    return int(match[1]), int(match[2])
