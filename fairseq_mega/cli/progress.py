"""Copy the output of a fairseq command to a log, and print progress lines."""

import json
import math
import time
from typing import IO, Any, Dict, NamedTuple, Optional, TextIO


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
