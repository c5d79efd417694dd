"""Measurements as JSON lines: an interrupted run continues after its last line."""

import json
import sys
import time
from pathlib import Path
from typing import Any, Dict, Optional

NOT_YET = 75  # exit status: measurements are left, the same command continues (EX_TEMPFAIL)


class Rows:
    """A file with one JSON line per measurement: its subject ("what"), its settings and its figures.

    Args:
        path: the file, created with the first line; None for no file.
        settings: part of every line; lines with other settings are ignored.
        stop_after: seconds after which nothing more is measured.
    """

    def __init__(self, path: Optional[Path], settings: Dict[str, Any], stop_after: Optional[float] = None) -> None:
        self.path, self.settings = path, settings
        self.end = None if stop_after is None else time.monotonic() + stop_after
        self.known: Dict[str, Dict[str, Any]] = {}
        for line in path.read_text().splitlines() if path is not None and path.exists() else ():
            try:
                row = json.loads(line)
            except ValueError:  # the last line of a run that was killed while it wrote
                continue
            self.known[self._key(row["settings"], row["what"])] = row["found"]

    @staticmethod
    def _key(settings: Dict[str, Any], what: Dict[str, Any]) -> str:
        return json.dumps([settings, what], sort_keys=True)

    def find(self, **what: Any) -> Optional[Dict[str, Any]]:
        """Return the figures of an earlier measurement, or None.

        Raises:
            SystemExit: with status NOT_YET, if there is no measurement and the time is up.
        """
        found = self.known.get(self._key(self.settings, what))
        if found is None and self.end is not None and time.monotonic() > self.end:
            print(
                f"the time is up: {len(self.known)} rows are in {self.path}, the same command continues",
                file=sys.stderr,
            )
            sys.exit(NOT_YET)
        return found

    def add(self, found: Dict[str, Any], **what: Any) -> Dict[str, Any]:
        """Write one line, and return ``found``."""
        self.known[self._key(self.settings, what)] = found
        if self.path is not None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            cut_off = self.path.exists() and self.path.read_bytes()[-1:] not in (b"", b"\n")
            with self.path.open("a") as file:
                line = json.dumps({"settings": self.settings, "what": what, "found": found})
                file.write(("\n" if cut_off else "") + line + "\n")
        return found
