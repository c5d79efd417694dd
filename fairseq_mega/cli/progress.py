"""Progress lines in place of the log of a fairseq command, which is written to a file."""

import contextlib
import json
import logging
import math
import sys
import time
from pathlib import Path
from typing import IO, Any, Dict, Iterator, NamedTuple, Optional, TextIO


def parse_statistics(line: str) -> Dict[str, Any]:
    """Return the statistics of a line logged with `--log-format json`, or {} for any other line."""
    start = line.find("{")
    if start < 0:
        return {}
    try:
        found = json.loads(line[start:])
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _scores(statistics: Dict[str, Any], prefix: str = "") -> str:
    """Return the loss and, if present, perplexity and accuracy."""
    titles = {"loss": "loss {}", "ppl": "perplexity {}", "accuracy": "accuracy {} %"}
    return ", ".join(
        title.format(statistics[prefix + key]) for key, title in titles.items() if prefix + key in statistics
    )


def _number(statistics: Dict[str, Any], key: str) -> Optional[float]:
    try:
        value = float(statistics[key])
    except (KeyError, TypeError, ValueError):
        return None
    return value if math.isfinite(value) else None


def _minutes(seconds: float) -> str:
    return f"about {seconds / 60:.0f} min left" if seconds >= 90 else f"about {seconds:.0f} s left"


class Note(NamedTuple):
    """A progress line; an urgent one is shown at once, others now and then."""

    text: str
    urgent: bool = False


class Progress:
    """Converter of lines of output to progress lines.

    Args:
        updates: number of updates to be trained, for the time left.
        seconds: time limit of the training in seconds, or None.
        sentences: number of sentences to be translated, for the share done.
    """

    def __init__(
        self, updates: Optional[int] = None, seconds: Optional[float] = None, sentences: Optional[int] = None
    ) -> None:
        self.updates, self.seconds, self.sentences = updates, seconds, sentences
        self.updates_done = 0
        self.translated = 0
        self._started = time.monotonic()

    def read(self, line: str) -> Optional[Note]:
        """Read one line of output; return a note if it has news."""
        if line.startswith("H-"):
            self.translated += 1
            last = self.translated == self.sentences
            return Note(f"{self.translated} of {self.sentences or '?'} sentences translated", urgent=last)
        statistics = parse_statistics(line)
        if "valid_loss" in statistics:
            self.updates_done = max(self.updates_done, int(_number(statistics, "valid_num_updates") or 0))
            found = _scores(statistics, "valid_")
            return Note(f"validation after update {statistics.get('valid_num_updates', '?')}: {found}", urgent=True)
        done = _number(statistics, "num_updates")
        if done is None or "loss" not in statistics:
            return None
        self.updates_done = int(done)
        return Note(self._training_line(statistics), urgent=self.updates_done == self.updates)

    def _training_line(self, statistics: Dict[str, Any]) -> str:
        parts = [f"update {self.updates_done}" + (f" of {self.updates}" if self.updates else "")]
        parts.append(_scores(statistics))
        words = _number(statistics, "wps")
        if words:
            parts.append(f"{words:.0f} tokens/s")
        left = []
        rate = _number(statistics, "ups")
        if rate and self.updates:
            left.append((self.updates - self.updates_done) / rate)
        if self.seconds is not None:
            left.append(self.seconds - (time.monotonic() - self._started))
        if left:
            parts.append(_minutes(max(0.0, min(left))))
        return ", ".join(parts)


class Printer:
    """Print the first note of a log, one per ``every`` seconds, and all urgent ones."""

    def __init__(self, progress: Progress, every: float, out: TextIO) -> None:
        self.progress, self._every, self._out = progress, every, out
        self._last = -math.inf

    def read(self, line: str) -> None:
        """Read one line of the log, and print its note if it is time."""
        note = self.progress.read(line)
        now = time.monotonic()
        if note is not None and (note.urgent or now - self._last >= self._every):
            self.print(note.text)
            self._last = now

    def print(self, text: str) -> None:
        """Print a line at once."""
        self._out.write(f"  {text}\n")
        self._out.flush()


def copy_with_progress(lines: IO[str], log: IO[str], progress: Progress, every: float, out: TextIO) -> None:
    """Copy `lines` to `log`, and print their notes, see :class:`Printer`."""
    printer = Printer(progress, every, out)
    for line in lines:
        log.write(line)
        log.flush()
        printer.read(line)


class _Notes(logging.Handler):
    """Print the notes of log records, and messages of this package and warnings as they are."""

    def __init__(self, printer: Printer) -> None:
        super().__init__()
        self._printer = printer

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if record.levelno >= logging.WARNING:
            self._printer.print(f"{record.levelname.lower()}: {message}")
        elif record.name.split(".")[0] == "fairseq_mega":
            self._printer.print(message)
        else:
            self._printer.read(message)


@contextlib.contextmanager
def progress_lines(progress: Progress, log: Path, every: float = 10.0) -> Iterator[None]:
    """Print progress lines in place of what fairseq logs, and append the whole log to a file.

    fairseq adds no handler to a root logger that has some, so that these must come first.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    whole = logging.FileHandler(log, encoding="utf-8")
    whole.setFormatter(logging.Formatter("%(asctime)s | %(levelname)s | %(name)s | %(message)s"))
    printer = Printer(progress, every, sys.stdout)
    logging.basicConfig(level=logging.INFO, handlers=[whole, _Notes(printer)], force=True)
    printer.print(f"the log: {log}")
    yield
    printer.print(f"the training has ended: {log.parent}")
