"""Answer questions about long documents with a language model, and score the answers.

    fairseq-mega-qa narrative_qa --questions narrative_qa/validation.jsonl --path CHECKPOINT --data DATA --output FILE
    fairseq-mega-qa qasper --questions qasper/validation.jsonl --examples qasper/train.jsonl ...
    fairseq-mega-qa qmsum --questions qmsum/validation.jsonl --examples qmsum/train.jsonl ...

The data sets are SCROLLS's (tau/scrolls), as .jsonl files that you provide. The model reads DOCUMENT, "Q: QUESTION" and
"A:", a line each, and decodes greedily to the end of the line. With --shots N, N answered questions from --examples
come first. A document is read chunk by chunk, in constant memory, and is never shortened. NarrativeQA and Qasper are
scored by the F1 of words, QMSum by the geometric mean of ROUGE-1, 2 and L, against the best of the references, in
percent. The scores are written to --output as JSON, and each answer at once to a file beside it: the same command
continues an interrupted run.
"""

import argparse
import json
import logging
import os
import shlex
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence

import torch

from fairseq_mega.cli.commands import exit_status
from fairseq_mega.compat.features import precision
from fairseq_mega.lab.prepare.download import sha256_of
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.models.mega_lm import MegaLanguageModel
from fairseq_mega.tasks.families import LANGUAGE_MODEL, check_model_and_data

from .questions import Lines, Question, draw_shots, prompt_of
from .scores import score

PROGRAM = "fairseq-mega-qa"
SECONDS = 10.0  # seconds between lines of progress
logger = logging.getLogger("fairseq_mega.question_answering")


class DataSet(NamedTuple):
    """Metric and limits of the answers to a data set of SCROLLS."""

    metric: str  # a key of scores.METRICS
    shots: int  # of MEGALODON's table
    answer_tokens: int  # at most


DATA_SETS: Dict[str, DataSet] = {
    "narrative_qa": DataSet("f1", 0, 64),
    "qasper": DataSet("f1", 2, 128),
    "qmsum": DataSet("rouge", 1, 256),
}


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
        text = path.read_bytes() if path.exists() else b""
        whole = text[: text.rfind(b"\n") + 1]  # without an incomplete last line
        if whole.count(b"\n") < 2:
            return
        before, *found = map(json.loads, whole.splitlines())
        if before != settings:
            raise ValueError(f"{path} was begun with other settings, {before}: remove it, or give another --output")
        self.answers = {item["id"]: item["answer"] for item in found}
        os.truncate(path, len(whole))
        self._head = ""

    def add(self, number: str, answer: str) -> None:
        """Add the answer to the question of this id."""
        self.answers[number] = answer
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("w" if self._head else "a", encoding="utf-8") as file:
            file.write(self._head + json.dumps({"id": number, "answer": answer}, ensure_ascii=False) + "\n")
        self._head = ""


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=PROGRAM, description=__doc__, formatter_class=form, allow_abbrev=False)
    add = parser.add_argument
    add("data_set", choices=list(DATA_SETS), help="data set, which determines prompt and score")
    add("--questions", type=Path, required=True, metavar="FILE", help="questions: validation.jsonl of SCROLLS")
    add("--examples", type=Path, metavar="FILE", help="answered questions for --shots: train.jsonl of SCROLLS")
    add("--path", type=Path, required=True, metavar="CHECKPOINT", help="checkpoint of a language model of this package")
    add("--data", type=Path, required=True, help="data folder of the training, for the dictionary")
    add("--output", type=Path, required=True, metavar="FILE", help="result file to write (JSON)")
    shots = ", ".join(f"{name} {data_set.shots}" for name, data_set in DATA_SETS.items())
    shots = f"number of answered questions in front (default: the paper's, {shots})"
    add("--shots", type=int, choices=[0, 1, 2], help=shots)
    lengths = ", ".join(f"{name} {data_set.answer_tokens}" for name, data_set in DATA_SETS.items())
    add("--answer-tokens", type=int, metavar="N", help=f"maximum tokens of an answer (default: {lengths})")
    add("--seed", type=int, default=1, help="seed that draws the --shots (default: %(default)s)")
    add("--limit", type=int, metavar="N", help="use the first N questions only")
    add("--label", help="name of the model in the result (default: the file name of --path)")
    add("--cpu", action="store_true", help="use no GPU")
    add("--precision", choices=precision.PRECISIONS, default="fp32", help=precision.MEANING)
    return parser


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
    data_set = DATA_SETS[args.data_set]
    args.shots = data_set.shots if args.shots is None else args.shots
    args.answer_tokens = data_set.answer_tokens if args.answer_tokens is None else args.answer_tokens
    if args.shots and args.examples is None:
        raise ValueError(f"--shots {args.shots}: give --examples, the train.jsonl that they are drawn from")
    settings, questions = settings_of(args), Lines(args.questions)
    selected = dict(list(questions.by_id().items())[: args.limit])
    file = AnswerFile(args.output.with_suffix(".answers.jsonl"), settings)
    unanswered = [line for number, (line, _) in selected.items() if number not in file.answers]
    logger.info(f"{len(selected) - len(unanswered)} of {len(selected)} questions are answered already")
    if unanswered:
        answer(args, map(questions.__getitem__, unanswered), file)
    references = [answers for _, answers in selected.values()]
    scores = score(data_set.metric, [file.answers[number] for number in selected], references)
    result = make_result(
        "question-answering", args.label or args.path.stem, scores, len(selected), command, args.seed, settings
    )
    write_result(args.output, result)
    print(", ".join(f"{name} {value:.2f}" for name, value in scores.items()), f"({len(selected)} questions)")


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Run the command line; returns the exit status: 0, 1 after an error message, 130 after an interrupt."""
    args = build_parser().parse_args(argv)
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    given: List[str] = list(sys.argv[1:] if argv is None else argv)
    try:
        return exit_status(PROGRAM, lambda: run(args, shlex.join([PROGRAM, *given])))
    except KeyboardInterrupt:
        return 130
    finally:
        logger.removeHandler(handler)


if __name__ == "__main__":
    sys.exit(main())
