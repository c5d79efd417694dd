"""Every command in a document is one that runs: its program is there, and knows each of its options."""

from typing import Set

import pytest
from fairseq import options

from fairseq_mega.cli.usage import plugin_flags
from tests.support import documented_commands as documents
from tests.support.documented_commands import OPTION, Command, commands

OTHERS = {"source", "pip", "cat", "echo", "grep", "cut", "fairseq-hydra-train"}
ALL = list(commands())


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
    assert not unknown
    assert FAIRSEQ and MODULES and SCRIPTS


@pytest.mark.parametrize("kind", documents.PARSERS)
def test_commands_of_fairseq_are_parsed(kind: str) -> None:
    flags = {*documents.OURS, *OPTION.findall(plugin_flags())}
    for command in (command for command in FAIRSEQ if documents.fairseq_command(command.program) == kind):
        parser = documents.PARSERS[kind]()
        if "..." in command.words or kind == "preprocess":
            unknown = {*command.options} - {*parser._option_string_actions} - flags
        else:
            _, rest = options.parse_args_and_arch(parser, list(command.words[1:]), parse_known=True)
            unknown = {word for word in rest if word.startswith("-")} - {*documents.OURS}
        assert not unknown, command


def unknown_options(command: Command, printed: str) -> Set[str]:
    return {*command.options} - {*OPTION.findall(printed)}


@pytest.mark.parametrize("module", sorted({documents.module_of(command)[0] for command in MODULES}))
def test_modules_know_their_options(module: str) -> None:
    if module.endswith(".lm_eval_command"):
        pytest.importorskip("lm_eval", reason="needs lm-evaluation-harness: pip install 'fairseq_mega[lm-eval]'")
    for command in (command for command in MODULES if documents.module_of(command)[0] == module):
        assert not unknown_options(command, documents.help_of(module, tuple(documents.module_of(command)[1]))), command


def test_scripts_know_their_options() -> None:
    for command in SCRIPTS:  # the help fails where there is no script
        assert not unknown_options(command, documents.help_of_script(documents.script_of(command))), command
