"""Every command in a document is one that runs: its program is there, and knows each of its options."""

import ast
import importlib.util
import pkgutil
import re
from typing import List

import pytest
from fairseq import options

from tests.support import documented_commands as documents
from tests.support.documented_commands import OPTION, Command, commands
from tests.support.helpers import REPOSITORY

OTHERS = {"source", "pip", "ls", "cat", "wc", "mkdir", "cp", "cd", "tail", "head", "echo", "grep", "cut"}
OTHERS |= {"for", "done;", "fairseq-hydra-train", "torchrun"}  # of the shell and of others
ALL = list(commands())


def names(known: List[Command]) -> List[str]:
    return [f"{command.document}: {' '.join(command.words)[:60]}" for command in known]


FAIRSEQ = [command for command in ALL if documents.fairseq_command(command.program)]
MODULES = [command for command in ALL if documents.module_of(command)[0]]
SCRIPTS = [command for command in ALL if documents.script_of(command)]


def test_every_command_is_of_a_known_kind() -> None:
    unknown = [
        command
        for command in ALL
        if command not in [*FAIRSEQ, *MODULES, *SCRIPTS]
        and command.program.split("/")[-1] not in OTHERS
        and command.words[:2] != ("python", "setup.py")
    ]
    assert not names(unknown)
    assert len(FAIRSEQ) > 15 and len(MODULES) >= 20 and len(SCRIPTS) >= 15


@pytest.mark.parametrize("command", FAIRSEQ, ids=names(FAIRSEQ))
def test_commands_of_fairseq_are_parsed(command: Command) -> None:
    kind = documents.fairseq_command(command.program)
    parser = documents.PARSERS[kind]()
    if "..." in command.words or kind == "preprocess":
        known = {*parser._option_string_actions, *documents.OURS, *OPTION.findall(plugin_flags())}
        assert not set(command.options) - known
        return
    _, unknown = options.parse_args_and_arch(parser, list(command.words[1:]), parse_known=True)
    assert {word for word in unknown if word.startswith("-")} <= set(documents.OURS)


def plugin_flags() -> str:
    from fairseq_mega.cli.usage import plugin_flags as flags

    return flags()


@pytest.mark.parametrize("command", MODULES, ids=names(MODULES))
def test_modules_know_their_options(command: Command) -> None:
    module, sub = documents.module_of(command)
    assert importlib.util.find_spec(module) is not None
    if module.endswith(".lm_eval_command"):
        pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'fairseq_mega[lm-eval]'")
    printed = documents.help_of(module, tuple(sub))
    assert not set(command.options) - set(OPTION.findall(printed)), printed[:300]


@pytest.mark.parametrize("command", SCRIPTS, ids=names(SCRIPTS))
def test_scripts_know_their_options(command: Command) -> None:
    script = documents.script_of(command)
    assert (REPOSITORY / "scripts" / script).is_file()
    printed = documents.help_of_script(script)
    assert not set(command.options) - set(OPTION.findall(printed)), printed[:300]


def test_a_wrong_option_shows() -> None:
    text = documents.help_of("fairseq_mega.lab.inspect.command", ())
    assert "--draw" in OPTION.findall(text) and "--drawn" not in OPTION.findall(text)
    text = documents.help_of_script("prepare_text_lm.sh")
    assert "--unit" in OPTION.findall(text) and "--units" not in OPTION.findall(text)
    lines = list(documents.whole_lines('a="b\n c"\npython -m x \\\n --json F'))
    assert lines == ['a="b  c"', "python -m x   --json F"]


def modules_of(script: str) -> List[str]:
    """Names in a script of the shell: modules of python -m, and what the code of python -c imports."""
    named = re.findall(r"-m (fairseq_mega[\w.]*\w)", script)
    for code in re.findall(r"python -c '([^']*)'", script):
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.Import):
                named += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                named += [f"{node.module}.{alias.name}" for alias in node.names]
    return named


SHELL = [".ci/run", *(str(path.relative_to(REPOSITORY)) for path in (REPOSITORY / "scripts").rglob("*.sh"))]


@pytest.mark.parametrize("script", sorted(SHELL))
def test_scripts_import_what_is_there(script: str) -> None:
    for name in modules_of((REPOSITORY / script).read_text()):
        assert pkgutil.resolve_name(name), name


@pytest.mark.parametrize("line", ["python -c 'from fairseq_mega.ops import nativ'", "python -m fairseq_mega.nowhere"])
def test_a_module_that_is_not_there_shows(line: str) -> None:
    (name,) = modules_of(line)
    with pytest.raises((ImportError, AttributeError)):
        pkgutil.resolve_name(name)
