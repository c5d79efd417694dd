"""ListOps: the trees follow the published rules, their values are right, and a seed stands for one list."""

import hashlib
import random
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List, Tuple

import numpy as np
import pytest

from fairseq_mega.lab.prepare.generators.listops import (
    OPERATORS,
    TOKENS,
    Example,
    ListOpsRules,
    generate_listops,
    model_input,
)

SHORT = ListOpsRules(min_length=100, max_length=200)
Examples = Dict[str, List[Example]]
Trees = Dict[str, List[List[str]]]
RULES = {"standard": ListOpsRules(), "short": SHORT}
COUNTS = {"standard": 600, "short": 1500}


@pytest.fixture(scope="module")
def examples() -> Examples:
    return {name: list(generate_listops(COUNTS[name], seed=3, rules=RULES[name])) for name in RULES}


@pytest.fixture(scope="module")
def trees(examples: Examples) -> Trees:
    return {name: [model_input(source) for source, _ in found] for name, found in examples.items()}


def evaluate(tokens: List[str]) -> int:
    """Value of a tree, with Python's own functions."""
    functions: Dict[str, Callable[[List[int]], int]] = {
        "[MIN": min,
        "[MAX": max,
        "[MED": lambda values: int(np.median(values)),
        "[SM": lambda values: sum(values) % 10,
    }
    pending: List[List[Any]] = [[]]
    for token in tokens:
        if token in functions:
            pending.append([functions[token]])
        elif token == "X":
            function, *values = pending.pop()
            pending[-1].append(function(values))
        else:
            pending[-1].append(int(token))
    ((value,),) = pending
    return value


def depth(tokens: List[str]) -> int:
    """Nodes from the root to the deepest one, root included."""
    level = deepest = 0
    for token in tokens:
        level += 1 if token in OPERATORS else -1 if token == "X" else 0
        deepest = max(deepest, level + token.isdigit())
    return deepest


def numbers_of_arguments(tokens: List[str]) -> Iterable[int]:
    pending = [0]
    for token in tokens:
        if token == "X":
            yield pending.pop()
        else:
            pending[-1] += 1
            if token in OPERATORS:
                pending.append(0)


def binary_form(tokens: List[str]) -> str:
    """The form of the released files: ((operator, first), second), ... paired up from the left, and the bracket."""
    pending: List[str] = []
    opened: List[int] = []
    for token in tokens:
        if token in OPERATORS:
            opened.append(len(pending))
        pending.append("]" if token == "X" else token)
        if token == "X":
            folded, *parts = pending[opened[-1] :]
            for part in parts:
                folded = f"( {folded} {part} )"
            pending[opened.pop() :] = [folded]
    assert len(pending) == 1 and not opened
    return pending[0]


@pytest.mark.parametrize("name", RULES)
def test_trees_keep_to_the_rules_and_have_their_values(name: str, examples: Examples, trees: Trees) -> None:
    rules, found = RULES[name], trees[name]
    assert len(found) == COUNTS[name] == len({" ".join(tokens) for tokens in found})
    assert examples[name] == [(binary_form(tokens), evaluate(tokens)) for tokens in found]
    assert {target for _, target in examples[name]} == set(range(10))
    lengths = [len(tokens) for tokens in found]
    assert rules.min_length < min(lengths) and max(lengths) < rules.max_length
    assert max(map(depth, found)) == rules.max_depth
    assert {token for tokens in found for token in tokens} == set(TOKENS) and len(TOKENS) == 15
    arguments = Counter(number for tokens in found for number in numbers_of_arguments(tokens))
    assert set(arguments) == set(range(2, 11))


def drawn_by_the_book(rules: ListOpsRules, chance: random.Random, level: int = 1) -> List[str]:
    """One tree, whatever its length: the published recursion."""
    if level == rules.max_depth or chance.random() > 0.25:
        return [str(chance.randrange(10))]
    tokens = [chance.choice(OPERATORS)]
    for _ in range(chance.randint(2, 10)):
        tokens += drawn_by_the_book(rules, chance, level + 1)
    return [*tokens, "X"]


def shape(tokens: List[str]) -> Tuple[int, int, int, int]:
    """Length, depth, number of the root's arguments, operators."""
    return (
        len(tokens),
        depth(tokens),
        list(numbers_of_arguments(tokens))[-1],
        sum(token in OPERATORS for token in tokens),
    )


@pytest.mark.parametrize("name", RULES)
def test_shapes_are_distributed_as_in_the_published_recursion(name: str, trees: Trees) -> None:
    """Drawing level by level and giving up early is to change nothing: two-sample Kolmogorov-Smirnov statistics."""
    rules, chance, wanted = RULES[name], random.Random(8), 300
    book: List[List[str]] = []
    while len(book) < wanted:
        tokens = drawn_by_the_book(rules, chance)
        if rules.min_length < len(tokens) < rules.max_length:
            book.append(tokens)
    ours, theirs = (np.array([shape(tokens) for tokens in found]) for found in (trees[name], book))
    limit = 1.95 * (1 / len(ours) + 1 / len(theirs)) ** 0.5  # exceeded once in a thousand seeds
    for measure in range(ours.shape[1]):
        values = np.unique(np.concatenate([ours[:, measure], theirs[:, measure]]))
        shares = (
            np.searchsorted(np.sort(sample[:, measure]), values, side="right") / len(sample)
            for sample in (ours, theirs)
        )
        distance = np.abs(np.subtract(*shares)).max()
        assert distance < limit, (measure, distance)


def digest(examples: List[Example]) -> str:
    return hashlib.sha256(repr(examples).encode()).hexdigest()[:16]


def test_a_seed_stands_for_one_list_whatever_the_number_of_workers(examples: Examples) -> None:
    assert list(generate_listops(COUNTS["short"], seed=3, rules=SHORT, workers=2)) == examples["short"]
    assert list(generate_listops(100, seed=3, rules=SHORT)) == examples["short"][:100]
    assert not set(generate_listops(100, seed=4, rules=SHORT)) & set(examples["short"])


@pytest.mark.parametrize(("name", "expected"), [("standard", "729c3ece73abe4ee"), ("short", "c5f69e62887dc114")])
def test_the_list_of_a_seed_never_changes(name: str, expected: str, examples: Examples) -> None:
    """Published numbers about a seed's data have to stay true; a change of numpy's streams would show here, too."""
    assert digest(examples[name]) == expected
