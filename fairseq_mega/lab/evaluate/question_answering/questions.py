"""Questions in files of SCROLLS, a JSON object per line, which stay on disk until they are read."""

import hashlib
import json
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple


class Question(NamedTuple):
    """A question about a document."""

    number: str  # its id in SCROLLS
    document: str
    text: str
    answer: str

    def is_same(self, other: "Question") -> bool:
        """Return whether another question is the same about the same document; answers are not compared."""
        return (self.text, self.document) == (other.text, other.document)


class Questions:
    """The questions of a file, each with all of its reference answers.

    Lines with the same ``id`` are one question with several references. Documents are read again for each use: the
    files contain a document once for every question, gigabytes in all.

    Args:
        path: a ``.jsonl`` file with ``id``, ``input`` (the question, an empty line, the document) and ``output``.

    Raises:
        FileNotFoundError: if the file does not exist.
        ValueError: if the file is empty, or a line has another form.
    """

    def __init__(self, path: Path) -> None:
        lines = Lines(path)
        self.lines = lines
        self.first: List[int] = []  # number of the first line of each question
        self.numbers: List[str] = []
        self.references: List[List[str]] = []
        places: Dict[str, int] = {}
        digests: List[bytes] = []  # of question and document
        for line in range(len(lines)):
            question = lines[line]
            place = places.setdefault(question.number, len(places))
            if place == len(self.first):
                self.first.append(line)
                self.numbers.append(question.number)
                self.references.append([])
                digests.append(digest_of(question))
            if digest_of(question) != digests[place]:
                raise ValueError(
                    f"{path}, question {line + 1}: its id {question.number!r} is also the id of question "
                    f"{self.first[place] + 1}, another question or of another document: give every question its own id"
                )
            self.references[place].append(question.answer)

    def __len__(self) -> int:
        return len(self.first)

    def __getitem__(self, place: int) -> Question:
        return self.lines[self.first[place]]


def digest_of(question: Question) -> bytes:
    """Return the digest of a question and its document, which equals that of the same question alone."""
    return hashlib.sha256(f"{question.text}\n\n{question.document}".encode()).digest()


class Lines:
    """The lines of a file as questions, found by number without reading the rest; arguments as :class:`Questions`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise FileNotFoundError(
                f"{path} does not exist: give a .jsonl file of SCROLLS, for instance validation.jsonl"
            )
        self.path = path
        self.begins: List[int] = []
        position = 0
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    self.begins.append(position)
                position += len(line)
        if not self.begins:
            raise ValueError(
                f"{path} contains no question: give a .jsonl file of SCROLLS, for instance validation.jsonl"
            )

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, number: int) -> Question:
        with self.path.open("rb") as file:
            file.seek(self.begins[number])
            line = file.readline()
        where = f"{self.path}, question {number + 1}"
        try:
            item = json.loads(line)
        except ValueError as error:
            raise ValueError(f"{where}: not JSON ({error}); each line must be one object, as `jq -c` writes") from error
        text, document, answer, key = fields(item, where)
        return Question(key, document, text, answer)


def fields(item: Any, where: str) -> Tuple[str, str, str, str]:
    """Return question, document, answer and id of a line's object; raise ValueError, naming ``where``, without one."""
    if not isinstance(item, dict):
        raise ValueError(f"{where}: expected a JSON object, found {type(item).__name__}")
    for name in ("id", "input"):
        if not isinstance(item.get(name), str):
            raise ValueError(
                f"{where}: the field {name!r} is missing or not a text; give a file in the format of SCROLLS"
            )
    if item.get("output") is not None and not isinstance(item["output"], str):
        found = type(item["output"]).__name__
        raise ValueError(
            f"{where}: 'output' is not a text (found {found}): give a line with the same id for each reference"
        )
    if item.get("output") is None:
        raise ValueError(
            f"{where}: the field 'output' is missing: the answers of SCROLLS's test sets are not public; give "
            f"validation.jsonl"
        )
    try:
        (item["input"] + item["output"]).encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError(f"{where}: half of a character ({error}); get the file again") from error
    question, gap, document = item["input"].replace("\r\n", "\n").partition("\n\n")
    if not gap or not question.strip() or not document.strip():
        raise ValueError(f"{where}: 'input' must be a question, an empty line and a document")
    return question.strip(), document.strip(), item["output"].strip(), item["id"]
