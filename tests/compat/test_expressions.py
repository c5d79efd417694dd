"""Strings of a configuration that fairseq evaluates: plain values, and no code."""

import ast
import importlib
import sys
from pathlib import Path
from typing import Iterator, Tuple

import fairseq
import pytest
from fairseq import utils

from fairseq_mega.compat.files.expressions import UnsafeExpression, evaluate, literal

CODE = "__import__('pathlib').Path('{}').touch() or [5]"


@pytest.mark.parametrize(
    "text",
    ["(0.9, 0.98)", "[(512, 10, 5)] + [(512, 3, 2)] * 4", "{'lenpen': -0.6, 'names': {'a'}}", "3 - 4 * 2"],
)
def test_plain_values(text: str) -> None:
    assert evaluate(text) == eval(text)


@pytest.mark.parametrize(
    "text", [CODE, "().__class__", "[x for x in (1, 2)]", "9 ** 9 ** 9", "1 +", "(" * 4000 + ")" * 4000, "{[]: 1}"]
)
def test_anything_else_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(UnsafeExpression, match="was not run") as refusal:
        evaluate(text)
    assert len(str(refusal.value)) < 400 and "\n" not in str(refusal.value)
    assert literal(text) is None


def test_functions_of_fairseq_run_nothing(tmp_path: Path) -> None:
    with pytest.raises(UnsafeExpression):
        utils.eval_str_list(CODE.format(tmp_path / "made"))
    assert not (tmp_path / "made").exists()
    assert utils.eval_str_list("4,5", type=int) == [4, 5]


def calls_of(name: str) -> Iterator[Tuple[str, int]]:
    """Modules of fairseq, apart from its examples, that call `name`, and where."""
    root = Path(fairseq.__file__).parent
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[0] == "examples":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == name:
                yield ".".join(["fairseq", *parts]).replace(".__init__", ""), node.lineno


def test_no_module_of_fairseq_is_omitted() -> None:
    calls = list(calls_of("eval"))
    assert len(calls) > 20
    loaded = {name: vars(sys.modules[name]).get("eval") for name, _ in calls if name in sys.modules}
    assert set(loaded.values()) == {evaluate}
    assert {name for name, _ in calls} == set(loaded), "a module that the import of fairseq_mega does not load"


def test_no_module_of_fairseq_opens_files_in_another_way() -> None:
    """Each torch.load of fairseq is the one of compat.loading."""
    calls = {name for name, _ in calls_of("torch.load")}
    assert len(calls) > 3
    for name in calls:
        function = importlib.import_module(name).torch.load
        assert function.__module__ == "fairseq_mega.compat.files.loading", name
