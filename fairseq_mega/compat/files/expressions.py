"""Read values from strings of a configuration safely: fairseq uses `eval`, which runs any code in a file."""

import ast
import operator
import re
import sys
import typing

LONGEST_TEXT = 10_000  # characters outside quotes: Python's parser may crash on deep nesting
QUOTED = re.compile(r"(?<!\w)'[^'\\\n]*'" + r'|(?<!\w)"[^"\\\n]*"')
LARGEST_VALUE = 10_000  # maximum items of a sequence, or bits of a number


class UnsafeExpression(ValueError):
    """Error for a string of a configuration that is not a plain value."""

    def __init__(self, text: str, reason: str) -> None:
        self.text = text
        shown = text if len(text) <= 100 else text[:100] + "..."
        super().__init__(
            f"the configuration has {shown!r} in place of a plain value (numbers, strings, lists, + and *): "
            f"{reason[:100]}; it was not run"
        )


def evaluate(text: typing.Any, *_namespaces: typing.Any) -> typing.Any:
    """Return the value of an expression of literals, + - * and brackets, such as "[(512, 3)] * 4 + [(512, 2)]".

    Raises:
        TypeError: if `text` is not a string, as `eval` does.
        UnsafeExpression: if the text is another expression, or its value is too large.
    """
    if not isinstance(text, str):
        raise TypeError(f"a string is required, found {type(text).__name__}")
    try:
        length = len(QUOTED.sub("", text))
        if length > LONGEST_TEXT:
            raise ValueError(f"it has {length:,} characters outside of quotes")
        return _value(ast.parse(text.strip(), mode="eval").body)
    except (ValueError, TypeError, SyntaxError, ArithmeticError, RecursionError, MemoryError) as error:
        raise UnsafeExpression(text, str(error).splitlines()[0] if str(error) else type(error).__name__) from error


def literal(text: str) -> typing.Any:
    """Return the value of a Python literal, such as "{'dropout': 0.1}"; None for any other text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def _value(node: ast.AST) -> typing.Any:
    if isinstance(node, ast.BinOp):
        left, right = _value(node.left), _value(node.right)
        if isinstance(node.op, (ast.Add, ast.Sub)):
            return _bounded((operator.add if isinstance(node.op, ast.Add) else operator.sub)(left, right))
        if isinstance(node.op, ast.Mult):
            count, sequence = (left, right) if isinstance(left, int) else (right, left)
            if isinstance(count, int) and hasattr(sequence, "__len__") and count * len(sequence) > LARGEST_VALUE:
                raise ValueError(f"a sequence of {count * len(sequence):,} items")
            return _bounded(left * right)
        raise ValueError(f"{type(node.op).__name__} is not allowed")
    if isinstance(node, ast.UnaryOp):
        if isinstance(node.op, ast.Not):
            return not _value(node.operand)
        if isinstance(node.op, (ast.UAdd, ast.USub)):
            return operator.neg(_value(node.operand)) if isinstance(node.op, ast.USub) else +_value(node.operand)
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        kind = {ast.List: list, ast.Tuple: tuple, ast.Set: set}[type(node)]
        return kind([_value(item) for item in node.elts])
    elif isinstance(node, ast.Dict) and None not in node.keys:
        return dict(zip((_value(key) for key in node.keys if key), map(_value, node.values)))
    elif isinstance(node, ast.Constant):
        return node.value
    raise ValueError(f"{type(node).__name__} is not allowed")


def _bounded(value: typing.Any) -> typing.Any:
    size = value.bit_length() if isinstance(value, int) else len(value) if hasattr(value, "__len__") else 0
    if size > LARGEST_VALUE:
        raise ValueError(f"a value of size {size:,}")
    return value


def evaluate_literals_only() -> None:
    """Make fairseq's models, tasks, criterions and optimisers read strings of a configuration without running them.

    The name ``eval`` in a module hides the builtin function for the module's functions. The modules of fairseq_cli are
    not changed: they evaluate --model-overrides, which the user of the command wrote.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "fairseq":
            vars(module).setdefault("eval", evaluate)
