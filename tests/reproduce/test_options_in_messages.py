"""Messages of fairseq-mega-reproduce name options that a command has."""

import ast
import inspect
import re
import textwrap
from functools import lru_cache
from pathlib import Path
from typing import Any, Iterator, List, Set, Tuple

import pytest

import fairseq_mega
from fairseq_mega.lab.prepare.lra_archive import Part
from fairseq_mega.lab.prepare.registry import DATASETS, options_of
from fairseq_mega.lab.reproduce.options import build_parser
from tests.support.documented_commands import PARSERS

PACKAGE = Path(fairseq_mega.__file__).parent
OWN = ("lab/reproduce", "lab/recipes")  # rooms of the command
OPTION = re.compile(r"--[a-z][\w-]*")


def spoken(tree: ast.AST) -> Iterator[str]:
    """Yield the texts of a module that a user may read; a single word is an argument of a command."""
    described = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    texts = (node for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in described)
    yield from (node.value for node in texts if isinstance(node.value, str) and " " in node.value)


def helpers(tree: ast.AST) -> Iterator[Path]:
    """Yield the files of lab/prepare that a module imports, but for those with a command line of their own."""
    for node in ast.walk(tree):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.startswith("fairseq_mega.lab.prepare."):
            path = PACKAGE.parent / f"{module.replace('.', '/')}.py"
            if path.is_file() and "add_argument" not in path.read_text(encoding="utf-8"):
                yield path


def modules() -> Set[Path]:
    """Files whose messages reach the user of the command."""
    own = {path for room in OWN for path in (PACKAGE / room).glob("*.py")}
    return own | {helper for path in own for helper in helpers(ast.parse(path.read_text(encoding="utf-8")))}


def checks() -> List[Any]:
    """Functions of the data sets that the command calls."""
    names = ("check_packages", "check_sources", "check_readers", "remarks")
    found = [getattr(dataset, name) for dataset in DATASETS.values() for name in names]
    return list({function.__code__: function for function in (Part.check, *found)}.values())


@lru_cache(maxsize=None)
def known() -> Set[str]:
    """Options of the command, of fairseq-mega-prepare, and of fairseq-train, which are given after --."""
    own = {option for action in build_parser([], "")._actions for option in action.option_strings}
    own.add("--input")  # of fairseq-mega-convert, which is cut off from its messages
    return own.union(PARSERS["train"]()._option_string_actions, *(options_of(name).required for name in DATASETS))


def unknown_in(text: str) -> Tuple[str, ...]:
    """Return the options in a text that none of these commands has; a line that runs a script may have others."""
    return tuple(option for option in OPTION.findall(text) if option not in known() and "bash scripts/" not in text)


def test_the_helpers_are_among_them() -> None:
    assert PACKAGE / "lab/prepare/layouts.py" in modules()
    assert {DATASETS["aan"].check_sources, Part.check} <= set(checks())
    assert unknown_in("name the other tasks with --task-name") == ("--task-name",)
    assert not unknown_in("--where task=image")


@pytest.mark.parametrize("path", sorted(modules()), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_a_message_names_options_of_the_commands(path: Path) -> None:
    assert not [text for text in spoken(ast.parse(path.read_text(encoding="utf-8"))) if unknown_in(text)]


def test_a_check_of_a_data_set_names_options_of_the_commands() -> None:
    trees = [ast.parse(textwrap.dedent(inspect.getsource(function))) for function in checks()]
    assert not [text for tree in trees for text in spoken(tree) if unknown_in(text)]
