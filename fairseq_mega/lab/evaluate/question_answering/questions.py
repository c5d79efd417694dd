"""Questions in files of SCROLLS, a JSON object per line, and prompts for their answers."""

import json
import random
from itertools import islice
from pathlib import Path
from typing import Dict, List, NamedTuple, Sequence, Tuple


class Question(NamedTuple):
    """A question about a document."""

    number: str  # its id in SCROLLS
    document: str
    text: str
    answer: str

    def is_same(self, other: "Question") -> bool:
        """Return whether another question is the same about the same document; answers are not compared."""
        return (self.text, self.document) == (other.text, other.document)


class Lines:
    """The lines of a file as questions, which stay on disk: a file has a document once for every question, gigabytes.

    Args:
        path: a ``.jsonl`` file with ``id``, ``input`` (the question, an empty line, the document) and ``output``.

    Raises:
        OSError: if the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.begins: List[int] = []
        position = 0
        with path.open("rb") as file:
            for line in file:
                if line.strip():
                    self.begins.append(position)
                position += len(line)

    def __len__(self) -> int:
        return len(self.begins)

    def __getitem__(self, number: int) -> Question:
        with self.path.open("rb") as file:
            file.seek(self.begins[number])
            line = file.readline()
        try:
            item = json.loads(line)
            question, _, document = item["input"].replace("\r\n", "\n").partition("\n\n")
            return Question(item["id"], document.strip(), question.strip(), item["output"].strip())
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{self.path}, question {number + 1}: not in the format of SCROLLS ({error!r}); its test sets have no "
                "answers: give validation.jsonl"
            ) from error

    def by_id(self) -> Dict[str, Tuple[int, List[str]]]:
        """Return the first line and the answers of each question: lines with the same id are its references."""
        found: Dict[str, Tuple[int, List[str]]] = {}
        for number in range(len(self)):
            question = self[number]
            found.setdefault(question.number, (number, []))[1].append(question.answer)
        return found


def prompt_of(question: Question, shots: Sequence[Question], one_line: bool) -> str:
    """Return the text that an answer continues.

    ``shots`` come first, each as document, question and answer, then the document and the question without it::

        DOCUMENT
        Q: QUESTION
        A: ANSWER

        DOCUMENT
        Q: QUESTION
        A:

    Args:
        question: the question to answer.
        shots: questions with their answers.
        one_line: whether the prompt is one line, for models that treat a line as a document.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 4.3: the document, "Q:", the question, "A:".
    """
    worked = [f"{shot.document}\nQ: {shot.text}\nA: {shot.answer}" for shot in shots]
    whole = "\n\n".join([*worked, f"{question.document}\nQ: {question.text}\nA:"])
    return " ".join(whole.split()) if one_line else whole


def draw_shots(examples: Lines, count: int, seed: int, question: Question) -> List[Question]:
    """Draw ``count`` worked examples for a question: different examples per question, the same in each call.

    The question itself is excluded from the examples; raises ValueError if they are fewer than ``count``.
    """
    draw, numbers = random.Random(f"{seed} {question.number}"), range(len(examples))
    drawn = [examples[number] for number in draw.sample(numbers, count)]
    if any(map(question.is_same, drawn)):
        shuffled = (examples[number] for number in draw.sample(numbers, len(numbers)))
        drawn = list(islice((example for example in shuffled if not question.is_same(example)), count))
    return drawn
