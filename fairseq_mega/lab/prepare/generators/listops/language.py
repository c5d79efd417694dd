"""The tokens of ListOps, and the value of a tree of tokens."""

from typing import List, Tuple

OPERATORS = ("[MIN", "[MAX", "[MED", "[SM")
BRACKET = "X"  # the model reads it in place of "]"
TOKENS = (*map(str, range(10)), *OPERATORS, BRACKET)


def model_input(source: str) -> List[str]:
    """Return the tokens that the model reads, `TOKENS` only: no parentheses, and ``X`` for the closing bracket."""
    return [BRACKET if token == "]" else token for token in source.split() if token not in ("(", ")")]


def evaluate(tokens: List[str]) -> int:
    """Return the value of a tree given as the model's tokens.

    Raises:
        ValueError: tokens that are no single tree (names the place).
    """
    pending: List[Tuple[str, List[int]]] = [("", [])]
    for place, token in enumerate(tokens, start=1):
        if token in OPERATORS:
            pending.append((token, []))
            continue
        if token == BRACKET and len(pending) > 1 and pending[-1][1]:
            operator, values = pending.pop()
            value = _value(operator, sorted(values))
        elif len(token) == 1 and token in "0123456789":
            value = int(token)
        else:
            raise ValueError(f"token {place}: {token!r} fits no tree of the tokens {' '.join(TOKENS)}")
        pending[-1][1].append(value)
    if len(pending) > 1 or len(pending[0][1]) != 1:
        raise ValueError(
            f"the {len(tokens)} tokens make up {len(pending[0][1])} whole trees and leave {len(pending) - 1} operators "
            "open; exactly one whole tree is needed"
        )
    return pending[0][1][0]


def _value(operator: str, values: List[int]) -> int:
    """The value of one operator; `values` in ascending order."""
    middle = len(values) // 2
    if operator == "[MIN":
        return values[0]
    if operator == "[MAX":
        return values[-1]
    if operator == "[SM":
        return sum(values) % 10
    return values[middle] if len(values) % 2 else (values[middle - 1] + values[middle]) // 2
