"""Scores of answers as in SCROLLS: F1 of words, and ROUGE."""

import math
import re
import string
from collections import Counter
from typing import Callable, Dict, Hashable, Iterable, List, Sequence, Tuple

ARTICLES = re.compile(r"\b(a|an|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)
NOT_ROUGE = re.compile(r"[^a-z0-9]+")
ROUGE = ("rouge1", "rouge2", "rougeL")


def harmonic(common: float, answered: int, expected: int) -> float:
    """Return the F1 of ``common`` units in an answer of ``answered`` and a reference of ``expected``; 0 without common
    units.
    """
    return 2 * common / (answered + expected) if common else 0.0


def overlap(answer: Iterable[Hashable], reference: Iterable[Hashable]) -> float:
    """F1 of two bags."""
    found, expected = Counter(answer), Counter(reference)
    return harmonic((found & expected).total(), found.total(), expected.total())


def f1(answer: str, reference: str) -> float:
    """Return the F1 of the words, without case, punctuation and articles; 0 if no word is common.

    Source: SQuAD (Rajpurkar et al., 2016), for the words; SCROLLS, section 3.
    """
    words = [ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split() for text in (answer, reference)]
    return overlap(*words)


def rouge_words(text: str) -> List[str]:
    """Return the words of lower case letters and digits, without stemming."""
    return NOT_ROUGE.sub(" ", text.lower()).split()


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """Return the length of the longest common subsequence."""
    row = [0] * (len(second) + 1)
    for word in first:
        diagonal = 0
        for place, other in enumerate(second, start=1):
            above = row[place]
            row[place] = diagonal + 1 if word == other else max(above, row[place - 1])
            diagonal = above
    return row[-1]


def rouge(answer: str, reference: str) -> Dict[str, float]:
    """Return the F1 of words, of pairs of words, and of the longest common subsequence. Source: Lin, 2004."""
    found, expected = rouge_words(answer), rouge_words(reference)
    pairs: List[List[Tuple[str, str]]] = [list(zip(words, words[1:])) for words in (found, expected)]
    longest = common_subsequence(found, expected)
    return {
        "rouge1": overlap(found, expected),
        "rouge2": overlap(*pairs),
        "rougeL": harmonic(longest, len(found), len(expected)),
    }


METRICS: Dict[str, Callable[[str, str], Dict[str, float]]] = {
    "f1": lambda answer, reference: {"f1": f1(answer, reference)},
    "rouge": rouge,
}


def score(metric: str, answers: Sequence[str], references: Sequence[Sequence[str]]) -> Dict[str, float]:
    """Return mean scores in percent, each answer against its best reference, and for ROUGE the geometric mean of the
    three.

    Args:
        metric: a key of METRICS.
        answers: n, at least one.
        references: one or more for each.
    """
    best = []
    for answer, expected in zip(answers, references):
        each = [METRICS[metric](answer, reference) for reference in expected]
        best.append({name: max(one[name] for one in each) for name in each[0]})
    means = {name: 100 * math.fsum(one[name] for one in best) / len(best) for name in best[0]}
    if metric == "rouge":
        means["geometric_mean"] = math.prod(means[name] for name in ROUGE) ** (1 / len(ROUGE))
    return means
