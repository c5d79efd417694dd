"""The folder of --out: unfinished work stays apart, a finished data set appears at once and is not made again."""

import contextlib
import json
import os
import shutil
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Sequence

from fairseq_mega.compat.files.locks import InUse, acquire
from fairseq_mega.data.card import CARD_FILE, is_recorded, options_of
from fairseq_mega.lab.prepare.progress import print_line
from fairseq_mega.lab.runs.files import write_json
from fairseq_mega.lab.runs.stages import stage

UNFINISHED = "unfinished"
RAW = "raw"


class WorkFolder:
    """A folder that will hold a data set made with certain settings.

    ``DIR/raw`` keeps downloads. Everything else is made in ``DIR/unfinished``: the data set in ``output``, parts
    that a later run can continue or use as they are in ``parts``, anything else in ``scratch``. :meth:`publish` moves
    the data set into ``DIR``, card.json last, so that its presence means that all is there.

    Args:
        settings: the options that the result depends on; JSON values.
        leaves: names of the data set's files in the folder, which may contain others; none for a folder of its own.
    """

    def __init__(self, out: Path, settings: Dict[str, Any], leaves: Sequence[str] = ()) -> None:
        self.out, self.settings, self._leaves = out, settings, leaves
        self.raw, self._unfinished = out / RAW, out / UNFINISHED
        self.output, self.parts, self.scratch = (self._unfinished / name for name in ("output", "parts", "scratch"))

    @property
    def finished(self) -> bool:
        """Return whether the whole data set is in its place."""
        return is_recorded(self.out)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Work in the folder within the block; what a later run can use is kept, everything else unfinished removed.

        Raises ValueError if the folder holds something else, another data set, or one of other settings, or if another
        process is at work in it.
        """
        self.out.mkdir(parents=True, exist_ok=True)
        # Without empty folders, which a training that fails without data leaves as its --save-dir.
        names = {path.name for path in self.out.iterdir() if not path.is_dir() or any(path.iterdir())}
        foreign = sorted(names & set(self._leaves) if self._leaves else names - {UNFINISHED, RAW})
        if foreign and not self.finished:
            raise ValueError(
                f"--out {self.out} holds {', '.join(foreign[:3])} but no {CARD_FILE} of this command: give a new folder"
            )
        with contextlib.ExitStack() as at_end:
            if not self.finished:
                self._unfinished.mkdir(exist_ok=True)
                try:
                    lock = acquire(str(self._unfinished / "lock"), f"--out {self.out}", "command")
                except InUse as holder:
                    raise ValueError(f"--out {self.out}: another process is writing there ({holder})") from None
                if lock is not None:
                    at_end.callback(os.close, lock)
            self._claim()
            at_end.callback(self._clear)
            yield

    def _claim(self) -> None:
        """Compare the settings with those of an earlier run, of which parts alone are kept if it was interrupted."""
        if self.finished:
            self._compare(options_of(self.out))
            return
        record = self._unfinished / "settings.json"
        if record.exists() and self.parts.is_dir() and any(self.parts.iterdir()):
            self._compare(json.loads(record.read_text(encoding="utf-8")))
        for folder in (self.output, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        for folder in (self.output, self.scratch, self.parts):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(record, self.settings)

    def _clear(self) -> None:
        if self.finished:
            return
        for folder in (self.output, self.scratch):
            shutil.rmtree(folder, ignore_errors=True)
        if not any(self.parts.iterdir()):
            shutil.rmtree(self._unfinished)
        for folder in (self.raw, self.out):
            with contextlib.suppress(OSError):  # only if nothing is kept for the next run
                folder.rmdir()

    def _compare(self, before: Dict[str, Any]) -> None:
        """Raise ValueError naming the settings that differ."""
        pairs = {name: (before.get(name), self.settings.get(name)) for name in sorted({*before, *self.settings})}
        differing = [
            f"{name} was {json.dumps(old)} and is {json.dumps(new)} now"
            for name, (old, new) in pairs.items()
            if not _same(old, new)
        ]
        if differing:
            raise ValueError(f"--out {self.out} belongs to other settings ({'; '.join(differing)}): give a new folder")

    def part(self, name: str, make: Callable[[Path], None]) -> Path:
        """Return a folder of ``parts``, made unless an earlier run has made all of it.

        ``make`` fills it; an interrupted run may have left files there, which are useless after a ValueError.
        """
        folder = self.parts / name

        def work() -> None:
            try:
                make(folder)
            except ValueError:
                shutil.rmtree(folder, ignore_errors=True)
                raise

        stage(self.parts, name, work)
        return folder

    def publish(self, card: Dict[str, Any], parts: Sequence[str] = ()) -> None:
        """Move the data set, with some parts, into its place; ``card`` becomes card.json, the last file."""
        for path in (*self.output.iterdir(), *(self.parts / name for name in parts)):
            os.replace(path, self.out / path.name)
        write_json(self.out / CARD_FILE, {**card, "settings": self.settings})
        shutil.rmtree(self._unfinished, ignore_errors=True)
        print_line(f"done: {self.out} (its origin: {self.out / CARD_FILE})")


def _same(old: Any, new: Any) -> bool:
    """Return whether two values of a setting agree; of a file that no longer exists only the name is recorded.

    Earlier versions recorded less than the content of files: entries that one of them lacks do not count.
    """
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(map(_same, old, new))
    if isinstance(old, dict) and isinstance(new, dict):
        shared = (old.keys() & new.keys()).difference(["bytes"] if new.get("bytes", 0) is None else ())
        return bool(shared) and all(old[key] == new[key] for key in shared)
    return bool(old == new)
