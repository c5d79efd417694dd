"""ListOps: nested operations on lists of digits, such as ``[MAX 2 9 [MIN 4 7 ] ]``, whose value is a digit.

Trees are drawn by the rules of the Long Range Arena in blocks, each with its own random numbers. A block is drawn level
by level for all its trees at once: first the shapes, which settle the lengths, then the operators and digits of those
trees that are within the limits. Both are independent of each other, so this order does not change the distribution of
the trees that are kept. A tree that grows too long is abandoned while it grows.
"""

from dataclasses import dataclass
from functools import partial
from itertools import count as count_from
from typing import Iterator, List, NamedTuple, Set, Tuple

import numpy as np

from fairseq_mega.lab.prepare.generators.ordered_blocks import in_order

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
BRACKET = "X"  # the model reads it in place of "]"
TOKENS = (*map(str, range(10)), *OPERATORS, BRACKET)
ROOTS_PER_BLOCK = 2048

Example = Tuple[str, int]


@dataclass(frozen=True)
class ListOpsRules:
    """The distribution of the trees; the defaults are those of the Long Range Arena.

    The length of a tree counts digits, operators and closing brackets: it is the number of the model's tokens.
    """

    min_length: int = 500  # exclusive
    max_length: int = 2000  # exclusive
    max_depth: int = 10  # of the nodes, the root included; the deepest ones are digits
    min_args: int = 2
    max_args: int = 10
    operator_probability: float = 0.25  # of a node above the greatest depth; it is a digit otherwise


def model_input(source: str) -> List[str]:
    """Return the tokens that the model reads, `TOKENS` only: no parentheses, and ``X`` for the closing bracket."""
    return [BRACKET if token == "]" else token for token in source.split() if token not in ("(", ")")]


class _Level(NamedTuple):
    """The nodes of one depth, in the order of their parents; the arguments of the operators make up the next level."""

    owner: np.ndarray  # (nodes,) int64: the tree of each node
    arity: np.ndarray  # (nodes,) int64: number of arguments, 0 for a digit


def generate_listops(
    count: int,
    seed: int,
    rules: ListOpsRules = ListOpsRules(),
    workers: int = 1,
) -> Iterator[Example]:
    """Yield `count` distinct trees with their values; the same ones in the same order for every number of workers.

    Each is a pair of the fully parenthesised binary form of the released files, as in ``( ( ( [MAX 2 ) 9 ) ] )``, and
    the value, 0 to 9. The trees are independent of each other and of their place in the order, so any part can be a
    split. It never ends for rules that allow fewer different trees.

    Source: Long Range Arena (Tay et al., 2021), section 2.2.1, after Nangia and Bowman (2018).
    """
    seen: Set[str] = set()
    blocks = in_order(partial(_draw_block, seed, rules), count_from(), workers)
    while len(seen) < count:
        for source, target in next(blocks):
            if source not in seen and len(seen) < count:
                seen.add(source)
                yield source, target


def _draw_block(seed: int, rules: ListOpsRules, block: int) -> List[Example]:
    """The trees within the limits among `ROOTS_PER_BLOCK` drawn; they depend on the arguments only."""
    random = np.random.Generator(np.random.PCG64(np.random.SeedSequence((seed, block))))
    levels = _within_limits(*_draw_shapes(random, rules), rules)
    return _spell(random, levels)


def _draw_shapes(random: np.random.Generator, rules: ListOpsRules) -> Tuple[List[_Level], np.ndarray]:
    """Draw trees without their digits and operators; returns their levels and lengths, (trees,) int64.

    A tree is abandoned as soon as it has reached max_length: the returned length is then only a part of its length.
    """
    owner = np.arange(ROOTS_PER_BLOCK)
    length = np.zeros(ROOTS_PER_BLOCK, dtype=np.int64)
    levels = []
    for depth in range(1, rules.max_depth + 1):
        arity = np.zeros(len(owner), dtype=np.int64)
        if depth < rules.max_depth:
            operators = np.flatnonzero(random.random(len(owner)) < rules.operator_probability)
            arity[operators] = random.integers(rules.min_args, rules.max_args + 1, len(operators))
        levels.append(_Level(owner, arity))
        # An operator comes with a closing bracket, so it is two tokens where a digit is one.
        length += np.bincount(owner, 1 + (arity > 0), ROOTS_PER_BLOCK).astype(np.int64)
        owner = np.repeat(owner, arity)
        at_least = length + np.bincount(owner, minlength=ROOTS_PER_BLOCK)
        length = np.where(at_least >= rules.max_length, at_least, length)
        owner = owner[length[owner] < rules.max_length]
    return levels, length


def _within_limits(levels: List[_Level], length: np.ndarray, rules: ListOpsRules) -> List[_Level]:
    """The levels of the trees whose length is within the limits, without empty levels below."""
    kept = (rules.min_length < length) & (length < rules.max_length)
    parts = [_Level(level.owner[kept[level.owner]], level.arity[kept[level.owner]]) for level in levels]
    return [level for level in parts if len(level.owner)]


def _spell(random: np.random.Generator, levels: List[_Level]) -> List[Example]:
    """Add digits and operators to the trees; return source and value of each, in the order of the roots."""
    texts: List[str] = []
    values = np.zeros(0, dtype=np.int64)
    for level in reversed(levels):
        places = np.flatnonzero(level.arity)
        arity = level.arity[places]
        operators = random.integers(0, len(OPERATORS), len(places))
        results = _apply(operators, values, arity)
        values = random.integers(0, 10, len(level.arity))
        below, texts = texts, list(map(str, values.tolist()))
        values[places] = results
        end = 0
        for place, operator, size in zip(places.tolist(), operators.tolist(), arity.tolist()):
            start, end = end, end + size
            texts[place] = f"{'( ' * (size + 1)}{OPERATORS[operator]} {' ) '.join(below[start:end])} ) ] )"
    return list(zip(texts, values.tolist()))


def _apply(operators: np.ndarray, values: np.ndarray, arity: np.ndarray) -> np.ndarray:
    """Values of operators whose arguments lie one after the other in `values`; (operators,) int64."""
    if not len(operators):
        return np.zeros(0, dtype=np.int64)
    starts = np.cumsum(arity) - arity
    rows = np.repeat(np.arange(len(arity)), arity)
    table = np.full((len(arity), arity.max()), 10)  # greater than any digit, so that sorting leaves it at the end
    table[rows, np.arange(len(values)) - starts[rows]] = values
    table.sort(axis=1)
    each = np.arange(len(arity))
    last = table[each, arity - 1]
    median = (table[each, (arity - 1) // 2] + table[each, arity // 2]) // 2
    # In the order of OPERATORS.
    return np.choose(operators, [table[:, 0], last, median, np.add.reduceat(values, starts) % 10])
