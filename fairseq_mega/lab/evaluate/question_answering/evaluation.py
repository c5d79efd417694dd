"""Answer the questions of a data set with a language model, and score the answers."""

import contextlib
import logging
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Iterator, NamedTuple, Optional

from fairseq_mega.compat.features import interactive
from fairseq_mega.lab.prepare.checksums import sha256_of

from .answers import AnswerFile
from .prompts import draw_shots, prompt_of
from .questions import Lines, Question, Questions
from .scores import score, without_words

logger = logging.getLogger("fairseq_mega.question_answering")

SECONDS = 10.0  # seconds between lines of progress


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


class Evaluation(NamedTuple):
    """Settings of one evaluation: the questions, the worked examples and the limits."""

    data_set: str  # a key of DATA_SETS
    questions: Path
    examples: Optional[Path]  # file of the worked examples
    shots: int
    answer_tokens: int
    seed: int
    limit: Optional[int]  # number of questions, from the first one


def settings_of(evaluation: Evaluation, checkpoint: Path) -> Dict[str, Any]:
    """Return the settings that the answers depend on, with the SHA-256 of each file."""
    files = {"checkpoint": checkpoint, "questions": evaluation.questions, "examples": evaluation.examples}
    sums = {f"{name}_sha256": sha256_of(file) for name, file in files.items() if file is not None and file.is_file()}
    given = {name: getattr(evaluation, name) for name in ("data_set", "shots", "answer_tokens", "seed")}
    return {**given, **sums}


def evaluate(
    evaluation: Evaluation, load: Callable[[], Any], answers: Path, settings: Dict[str, Any]
) -> Dict[str, Any]:
    """Answer the questions without an answer in ``answers``, and score all.

    Args:
        evaluation: settings of the evaluation.
        load: returns a :class:`fairseq_mega.models.streams.generator.TextGenerator`; called after the data have been
            checked.
        answers: file of the answers so far.
        settings: that they depend on.

    Returns:
        The mean scores in percent, and the number of questions as ``questions``.

    Raises:
        OSError: if a file is missing.
        ValueError: if a file is damaged or does not suit the options.
    """
    questions = Questions(evaluation.questions)
    examples = None
    if evaluation.shots > 0:
        if evaluation.examples is None:
            raise ValueError(f"--shots {evaluation.shots}: give --examples, the train.jsonl that they are drawn from")
        examples = Lines(evaluation.examples)
        if len(examples) < evaluation.shots:
            raise ValueError(
                f"--shots {evaluation.shots}: {evaluation.examples} contains only {len(examples)} questions"
            )
    count = len(questions) if evaluation.limit is None else min(evaluation.limit, len(questions))
    metric = DATA_SETS[evaluation.data_set].metric
    lost = without_words(metric, questions.references[:count])
    if lost:
        logger.warning(
            f"{lost} of {count} questions score 0 for any answer: {metric}, a metric for English, finds no word in "
            "their references"
        )
    file = AnswerFile(answers, settings)
    unanswered = [place for place in range(count) if questions.numbers[place] not in file.answers]
    if unanswered:
        generator = load()
        logger.info(f"{count - len(unanswered)} of {count} questions are answered already")
        ask(evaluation, generator, (questions[place] for place in unanswered), examples, file)
    found = [file.answers[number] for number in questions.numbers[:count]]
    scores = score(metric, found, questions.references[:count])
    return {**scores, "questions": count}


def ask(
    evaluation: Evaluation, generator: Any, questions: Iterable[Question], examples: Optional[Lines], file: AnswerFile
) -> None:
    """Answer questions one by one, greedily up to the end of the line, and add the answers to a file."""
    resets = any(model.decoder.document_symbol is not None for model in generator.models)
    one_line = resets and generator.parts_lines  # for models that treat a line as a document
    shown = time.monotonic()
    with unknown_symbols_told_once():
        for question in questions:
            shots = [] if examples is None else draw_shots(examples, evaluation.shots, evaluation.seed, question)
            prompt = prompt_of(question, shots, one_line)
            answer = generator.complete(prompt, evaluation.answer_tokens, stop_at_line_end=True, temperature=0.0)
            file.add(question.number, answer.strip())
            if time.monotonic() - shown >= SECONDS:
                shown = time.monotonic()
                logger.info(f"{len(file.answers)} questions answered")


@contextlib.contextmanager
def unknown_symbols_told_once() -> Iterator[None]:
    """Forward only the first warning of unknown symbols in a text, and count such texts at the end."""
    told = []

    def is_first(record: logging.LogRecord) -> bool:
        told.append(record)
        return len(told) == 1

    interactive.logger.addFilter(is_first)
    try:
        yield
    finally:
        interactive.logger.removeFilter(is_first)
        if len(told) > 1:
            logger.warning(f"{len(told)} prompts contain symbols that are unknown to the model (<unk>)")
