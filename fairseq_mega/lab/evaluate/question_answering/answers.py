"""The answers of an unfinished evaluation, in a file beside its result, from which it continues after a kill."""

import json
import os
from pathlib import Path
from typing import Any, Dict


class AnswerFile:
    """Answers by the id of their question; each answer is on disk as soon as it is added.

    The first line of the file contains the settings, every other line an answer.

    Args:
        path: of the file, created with the first answer.
        settings: on which the answers depend.

    Raises:
        ValueError: if the existing file has other settings, or is not a file of answers.
    """

    def __init__(self, path: Path, settings: Dict[str, Any]) -> None:
        self.path = path
        self.answers: Dict[str, str] = {}
        self._head = json.dumps(settings) + "\n"  # text that is to be written first
        if path.exists():
            self._read(settings)

    def _read(self, settings: Dict[str, Any]) -> None:
        """Read the existing answers, without an incomplete last line."""
        text = self.path.read_bytes()
        whole = text[: text.rfind(b"\n") + 1]
        if whole.count(b"\n") < 2:
            return
        try:
            first, *found = [json.loads(line) for line in whole.splitlines()]
            before = dict(first)
            self.answers = {item["id"]: item["answer"] for item in found}
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{self.path} contains no answers of this command: remove it, or give --output") from error
        if before != settings:
            names = sorted(name for name in {*before, *settings} if before.get(name) != settings.get(name))
            raise ValueError(
                f"{self.path} was begun with other settings ({', '.join(names)}): remove it, or give another --output"
            )
        os.truncate(self.path, len(whole))
        self._head = ""

    def add(self, number: str, answer: str) -> None:
        """Add the answer to the question of this id."""
        self.answers[number] = answer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w" if self._head else "a", encoding="utf-8") as file:
            file.write(self._head + json.dumps({"id": number, "answer": answer}, ensure_ascii=False) + "\n")
        self._head = ""
