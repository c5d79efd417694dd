"""Copy the output of a fairseq command from standard input to a log, and print progress lines.

Run by its path, this module requires the standard library only and starts at once.
"""

import argparse
import json
import math
import signal
import sys
import time
from pathlib import Path
from typing import IO, Any, Dict, List, NamedTuple, Optional, TextIO


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
        if "cumulative_training_time" in line:
            return Note(f"the time limit ends the training after about {self.updates_done} updates", urgent=True)
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


def copy_with_progress(lines: IO[str], log: IO[str], progress: Progress, every: float, out: TextIO) -> None:
    """Copy `lines` to `log`; write to `out` the first note, one per `every` seconds, and all urgent ones."""
    last = -every
    for line in lines:
        log.write(line)
        log.flush()
        note = progress.read(line)
        if note is None:
            continue
        now = time.monotonic()
        if note.urgent or now - last >= every:
            out.write(f"  {note.text}\n")
            out.flush()
            last = now


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="log_progress", description=__doc__)
    parser.add_argument("--log", type=Path, required=True, help="file the output is added to")
    parser.add_argument("--updates", type=int, help="updates to be trained")
    parser.add_argument("--minutes", type=float, help="time limit of the training")
    parser.add_argument("--sentences", type=int, help="sentences to be translated")
    parser.add_argument("--every", type=float, default=20.0, help="seconds between progress lines")
    options = parser.parse_args(arguments)
    # An interrupt ends the command whose output is read here; its last lines still belong in the log.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    seconds = None if options.minutes is None else 60.0 * options.minutes
    progress = Progress(options.updates, seconds, options.sentences)
    with open(sys.stdin.fileno(), encoding="utf-8", errors="replace", closefd=False) as lines, open(
        options.log, "a", encoding="utf-8"
    ) as log:
        copy_with_progress(lines, log, progress, options.every, sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
