"""What a model reads before it answers: worked examples, the document, the question."""

import random
from typing import List, Sequence

from .questions import Lines, Question


def prompt_of(question: Question, shots: Sequence[Question], one_line: bool) -> str:
    """The text that an answer continues.

    ``shots`` come first, each as document, question and answer, then the document and the question without it::

        DOCUMENT
        Q: QUESTION
        A: ANSWER

        DOCUMENT
        Q: QUESTION
        A:

    Args:
        question: to be answered.
        shots: questions with their answers.
        one_line: all of it in one line, for models to which a line is a document.

    Source: MEGALODON (Ma et al., NeurIPS 2024), section 4.3: the document, "Q:", the question, "A:".
    """
    worked = [f"{shot.document}\nQ: {shot.text}\nA: {shot.answer}" for shot in shots]
    whole = "\n\n".join([*worked, f"{question.document}\nQ: {question.text}\nA:"])
    return " ".join(whole.split()) if one_line else whole


def draw_shots(examples: Lines, count: int, seed: int, question: Question) -> List[Question]:
    """``count`` worked examples for a question: others for each, and the same ones whenever it is asked."""
    drawn = random.Random(f"{seed} {question.number}").sample(range(len(examples)), count)
    return [examples[number] for number in drawn]
