"""Answer questions about long documents of SCROLLS, in prompts with worked examples, and score the answers."""

import argparse
import json
import logging
import random
import time
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import torch

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.runs.files import add_json_line, read_json_lines
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.families import LANGUAGE_MODEL, check_model_and_data

from .scores import score

SECONDS = 10.0  # seconds between lines of progress
logger = logging.getLogger("fairseq_mega.question_answering")


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
        item = json.loads(line)
        question, _, document = item["input"].replace("\r\n", "\n").partition("\n\n")
        return Question(item["id"], document.strip(), question.strip(), item["output"].strip())

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
    if len(drawn) < count:
        raise ValueError(f"--shots {count}: --examples {examples.path} has {len(drawn)} other than the question itself")
    return drawn


class AnswerFile:
    """Answers by the id of their question; each answer is on disk as soon as it is added.

    The first line of the file contains the settings, every other line an answer.

    Args:
        path: of the file, created with the first answer.
        settings: on which the answers depend.

    Raises:
        ValueError: if the existing file has other settings.
    """

    def __init__(self, path: Path, settings: Dict[str, Any]) -> None:
        self.path, self.settings = path, settings
        before, *found = read_json_lines(path) or [settings]
        self.answers: Dict[str, str] = {item["id"]: item["answer"] for item in found}
        if found and before != settings:
            raise ValueError(f"{path} was begun with other settings, {before}: remove it, or give another --output")
        if not found:
            path.unlink(missing_ok=True)

    def add(self, number: str, answer: str) -> None:
        """Add the answer to the question of this id."""
        if not self.answers:
            add_json_line(self.path, self.settings)
        self.answers[number] = answer
        add_json_line(self.path, {"id": number, "answer": answer})


def settings_of(args: argparse.Namespace) -> Dict[str, Any]:
    """Return the settings that the answers depend on, with the SHA-256 of each file."""
    files = {"checkpoint": args.path, "questions": args.questions, "examples": args.examples}
    sums = {f"{name}_sha256": sha256_of(file) for name, file in files.items() if file is not None}
    given = {name: getattr(args, name) for name in ("data_set", "shots", "answer_tokens", "seed")}
    return {**given, **sums, "precision": args.precision}


def answer(args: argparse.Namespace, questions: Iterable[Question], file: AnswerFile) -> None:
    """Answer questions one by one, greedily up to the end of the line, and add the answers to a file."""
    check_model_and_data(args.path, args.data, LANGUAGE_MODEL)
    device = torch.device("cuda" if torch.cuda.is_available() and not args.cpu else "cpu")
    folder, name = str(args.path.parent), args.path.name
    generator = MegaLanguageModel.from_pretrained(folder, name, str(args.data.resolve())).to(device).eval()
    examples = None if args.examples is None else Lines(args.examples)
    resets = any(model.decoder.document_token is not None for model in generator.models)
    one_line = resets and generator.parts_lines  # for models that treat a line as a document
    shown = time.monotonic()
    with precision.evaluating(args.precision, device.type):
        for question in questions:
            shots = [] if examples is None else draw_shots(examples, args.shots, args.seed, question)
            prompt = prompt_of(question, shots, one_line)
            text = generator.complete(prompt, args.answer_tokens, stop_at_line_end=True, temperature=0.0)
            file.add(question.number, text.strip())
            if time.monotonic() - shown >= SECONDS:
                shown = time.monotonic()
                logger.info(f"{len(file.answers)} questions answered")


def run(args: argparse.Namespace, command: str) -> None:
    """Answer the questions, score, write the result and print its scores; raise OSError and ValueError."""
    if args.shots and args.examples is None:
        raise ValueError(f"--shots {args.shots}: give --examples, the train.jsonl that they are drawn from")
    inputs = [file.resolve() for file in (args.questions, args.examples, args.path) if file is not None]
    answers = args.output.with_suffix(".answers.jsonl")
    if args.output.resolve() in inputs or answers.resolve() in inputs:
        raise ValueError(f"--output {args.output}: it or {answers.name} beside it is an input")
    settings, questions = settings_of(args), Lines(args.questions)
    selected = dict(list(questions.by_id().items())[: args.limit])
    file = AnswerFile(answers, settings)
    unanswered = [line for number, (line, _) in selected.items() if number not in file.answers]
    logger.info(f"{len(selected) - len(unanswered)} of {len(selected)} questions are answered already")
    if unanswered:
        answer(args, map(questions.__getitem__, unanswered), file)
    references = [answers for _, answers in selected.values()]
    scores = score(args.metric, [file.answers[number] for number in selected], references)
    result = make_result(
        "question-answering", args.label or args.path.stem, scores, len(selected), command, args.seed, settings
    )
    write_result(args.output, result)
    print(", ".join(f"{name} {value:.2f}" for name, value in scores.items()), f"({len(selected)} questions)")
