"""Read values from strings of a configuration safely: fairseq uses `eval`, which runs any code in a file."""

import ast
import operator
import sys
from typing import Any

OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
NO_VALUE = (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError)


class UnsafeExpression(ValueError):
    """Error for a string of a configuration that is not a plain value."""

    def __init__(self, text: str, reason: str) -> None:
        shown = text if len(text) <= 100 else text[:100] + "..."
        super().__init__(
            f"the configuration has {shown!r} in place of a plain value (numbers, strings, lists, + and *): "
            f"{reason[:100]}; it was not run"
        )


def evaluate(text: Any, *_namespaces: Any) -> Any:
    """Return the value of an expression of literals, + - * and brackets, such as "[(512, 3)] * 4 + [(512, 2)]".

    Raises:
        TypeError: if `text` is not a string, as `eval` does.
        UnsafeExpression: if the text is another expression.
    """
    if not isinstance(text, str):
        raise TypeError(f"a string is required, found {type(text).__name__}")
    try:
        return _value(ast.parse(text.strip(), mode="eval").body)
    except NO_VALUE as error:
        raise UnsafeExpression(text, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def literal(text: str) -> Any:
    """Return the value of a Python literal, such as "{'dropout': 0.1}"; None for any other text."""
    try:
        return ast.literal_eval(text)
    except NO_VALUE:
        return None


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        return OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.List):
        return [_value(item) for item in node.elts]
    if isinstance(node, ast.Tuple):
        return tuple(map(_value, node.elts))
    return ast.literal_eval(node)


def evaluate_literals_only() -> None:
    """Make fairseq's models, tasks, criterions and optimisers read strings of a configuration without running them.

    The name ``eval`` in a module hides the builtin function for the module's functions. The modules of fairseq_cli are
    not changed: they evaluate --model-overrides, which the user of the command wrote.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq":
            vars(module).setdefault("eval", evaluate)
