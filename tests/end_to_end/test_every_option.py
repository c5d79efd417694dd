"""Every option of our commands with values that it cannot have: an effect or one line of error, no traceback."""

import argparse
import re
from typing import Any, Callable, Dict, Iterator, List, Tuple

import pytest

from fairseq_mega.cli import average_checkpoints
from fairseq_mega.cli.usage import UsageError, explained_errors
from fairseq_mega.compat import errors
from fairseq_mega.convert import command as convert_checkpoint
from fairseq_mega.lab.benchmarks import command as benchmarks
from fairseq_mega.lab.evaluate import classify
from fairseq_mega.lab.evaluate import language_model as evaluate_lm
from fairseq_mega.lab.evaluate.question_answering import command as question_answering
from fairseq_mega.lab.inspect import command as inspect_checkpoint
from fairseq_mega.lab.prepare import command as prepare
from fairseq_mega.lab.report import command as report

OURS: Dict[str, Callable[[], argparse.ArgumentParser]] = {
    module.__name__: module.build_parser
    for module in (
        *(average_checkpoints, benchmarks, classify, convert_checkpoint, evaluate_lm, inspect_checkpoint, prepare),
        *(report, question_answering),
    )
}
ELSEWHERE = ("--help", "--user-dir", "--tpu", "--plasma-path", "--max-epoch", "--stop-time-hours", "--max-update")
LARGE = re.compile(r"dim|layers|heads|positions|tokens|workers|world|cutoff|size|groups|freq|length|segments|fft")


def nonsense(action: argparse.Action) -> List[str]:
    """Values that an option with a value cannot have, or hardly."""
    if action.choices:
        return ["nosuch"]
    if action.type is float:
        return ["nan", "-1", "0", "1e30", "many"]
    if action.type is int:
        large = [] if LARGE.search(action.option_strings[-1]) else ["1000000000"]
        return ["-1", "0", "1.5", *large]
    return ["", "/nowhere/x", "nan"]


def cases(parser: argparse.ArgumentParser) -> Iterator[Tuple[argparse.Action, str, str]]:
    """Options that take values, their names, and nonsense."""
    for action in parser._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names and names[-1] not in ELSEWHERE and action.nargs != 0:
            yield from ((action, names[-1], value) for value in nonsense(action))


def outcome(call: Callable[..., Any], *arguments: Any) -> str:
    """Describe the end of a call that a mistake may end: "" or an error; that of a traceback begins with its name."""
    try:
        call(*arguments)
    except (UsageError, argparse.ArgumentError, argparse.ArgumentTypeError):
        return ""
    except SystemExit as end:
        return "" if end.code in (0, 2) else f"status {end.code}"
    except Exception as error:
        return "" if errors.is_users_error(error) else f"{type(error).__name__}: {error}"
    return ""


def unread(parser: argparse.ArgumentParser, read: Callable[[argparse.Action, str], Any]) -> Dict[str, str]:
    """Options with nonsense that end a call in a traceback."""
    with explained_errors():
        found = {f"{name}={value}": outcome(read, action, value) for action, name, value in cases(parser)}
    return {case: end for case, end in found.items() if end}


def values_of(parser: argparse.ArgumentParser) -> Callable[[argparse.Action, str], Any]:
    """Return a reader of the text of a value, as a parser reads it."""
    return lambda action, text: parser._get_values(action, [text])


@pytest.mark.parametrize("name", OURS)
def test_our_command_lines_are_read(name: str) -> None:
    parsers = [OURS[name]()]
    for parser in parsers:
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                parsers += action.choices.values()
    assert not {case: end for parser in parsers for case, end in unread(parser, values_of(parser)).items()}
