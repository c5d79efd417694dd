"""ListOps: the trees follow the published rules, their values are right, and a seed stands for one list."""

import hashlib
from collections import Counter
from typing import Any, Callable, Dict, Iterable, List

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
