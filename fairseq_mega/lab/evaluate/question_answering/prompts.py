"""Prompts for answers: worked examples, the document, the question."""

import random
from itertools import islice
from typing import List, Sequence

from .questions import Lines, Question


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

    The question itself is left out of the examples; raises ValueError if too few remain.
    """
    draw, numbers = random.Random(f"{seed} {question.number}"), range(len(examples))
    drawn = [examples[number] for number in draw.sample(numbers, count)]
    if any(map(question.is_same, drawn)):
        shuffled = (examples[number] for number in draw.sample(numbers, len(numbers)))
        drawn = list(islice((example for example in shuffled if not question.is_same(example)), count))
    if len(drawn) < count:
        raise ValueError(
            f"--shots {count}: {examples.path} contains {len(drawn)} questions other than {question.number!r}: give "
            "other --examples, or fewer --shots"
        )
    return drawn
