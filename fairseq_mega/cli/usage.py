"""Errors of a command line in one line with the remedy, where fairseq prints a page of options."""

import argparse
import ast
import contextlib
import difflib
import re
import typing

import fairseq_mega
from fairseq_mega.models.checkpoint_files import Origin
from fairseq_mega.tasks.families import kind_of

CHOICE = re.compile(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
VALUE = re.compile(r"argument (\S+): invalid (\S+) value: (.*)", re.DOTALL)
UNKNOWN = "unrecognized arguments: "
KINDS = {"int": "a whole number", "float": "a number", "<lambda>": "a number, or several separated by commas"}
MANY = 12  # names are not listed
# What each command cannot do without; fairseq finds some of them missing in a traceback.
REQUIRED = {
    command: {"--path": "the checkpoint; training leaves checkpoint_best.pt in its --save-dir"}
    for command in ("generate", "interactive", "eval-lm", "validate")
}


class UsageError(ValueError):
    """An error on the command line."""


def option_value(arguments: typing.Sequence[str], option: str) -> typing.Optional[str]:
    """The last value given to `option`, as `--option value` or `--option=value`, or None."""
    value = None
    for i, argument in enumerate(arguments):
        if argument == option and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(option + "="):
            value = argument[len(option) + 1 :]
    return value


def plugin_parsers(
    kinds: typing.Container[str] = ("--arch", "--task", "--lr-scheduler"),
) -> typing.Iterator[typing.Tuple[str, argparse.ArgumentParser]]:
    """Yield "--arch mega" and the like, and a parser of the flags that come with it, for all that this package adds."""
    from fairseq.dataclass.utils import gen_parser_from_dataclass
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY, LR_SCHEDULER_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    for option, classes, dataclasses in (
        ("--arch", MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
        ("--task", TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        ("--lr-scheduler", LR_SCHEDULER_REGISTRY, LR_SCHEDULER_DATACLASS_REGISTRY),
    ):
        for name, cls in classes.items():
            dataclass = dataclasses.get(name)
            ours = cls.__module__.split(".")[0] == fairseq_mega.__name__ and dataclass is not None
            if option not in kinds or not ours:
                continue
            parser = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS, allow_abbrev=False)
            gen_parser_from_dataclass(parser.add_argument_group(f"with {option} {name}"), dataclass())
            yield f"{option} {name}", parser


def plugin_flags(kinds: typing.Container[str] = ("--arch", "--task", "--lr-scheduler")) -> str:
    """Describe the flags of the package's models, tasks and schedulers, which fairseq's own --help never shows."""
    return "\n\n".join(parser.format_help().strip() for _, parser in plugin_parsers(kinds))


def options_of(parser: argparse.ArgumentParser) -> typing.List[str]:
    """Every option that a parser and its sub-commands know."""
    known = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                known += options_of(command)
    return known


def alternatives(names: typing.Sequence[str]) -> str:
    """Names as "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def explain(parser: argparse.ArgumentParser, message: str) -> str:
    """Turn the message of an argparse error into one that says what to do."""
    choice, value = CHOICE.fullmatch(message), VALUE.fullmatch(message)
    if choice is not None:
        option, given = choice[1], choice[2]
        names = [name.strip(" '\"") for name in choice[3].split(",")]
        near = difflib.get_close_matches(given, names, 3)
        known = near or (names if len(names) <= MANY else ["a name of those that --help lists"])
        return f"{option} {given} is unknown: give {alternatives(known)}"
    if value is not None:
        return f"{value[1]} {value[3]}: give {KINDS.get(value[2], 'a value of type ' + value[2])}"
    if message.startswith(UNKNOWN):
        words = message[len(UNKNOWN) :].split()
        unknown = next((word.split("=")[0] for word in words if word.startswith("-")), None)
        if unknown is None:
            return f"{message}: only the folder of the data stands without an option; quote names with spaces"
        near = difflib.get_close_matches(unknown, sorted(set(options_of(parser))), 3, 0.7)
        owners = [name for name, flags in plugin_parsers() if unknown in flags._option_string_actions]
        hints = [f"it goes with {alternatives(owners)}"] if owners else []
        hints += [f"do you mean {alternatives(near)}?"] if near and not owners else []
        return f"the option {unknown} is unknown here: {'; '.join(hints) or 'leave it out'} (--help lists them)"
    if message == "the following arguments are required: data":
        return "the folder of the data is missing: give it as the first argument"
    return message if ": give " in message else f"{message} (--help says more)"


class Parser(argparse.ArgumentParser):
    """A parser whose errors take one line."""

    def error(self, message: str) -> typing.NoReturn:
        """Say what is wrong and end with exit status 2."""
        self.exit(2, f"{self.prog}: error: {explain(self, message)}\n")


@contextlib.contextmanager
def explained_errors() -> typing.Iterator[None]:
    """Let every parser raise a UsageError in place of printing a page and ending the process."""
    original = argparse.ArgumentParser.error

    def error(self: argparse.ArgumentParser, message: str) -> typing.NoReturn:
        raise UsageError(explain(self, message))

    argparse.ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]


def check_arguments(command: str, arguments: typing.Sequence[str], origin: Origin) -> None:
    """Refuse what fairseq would find out in a traceback; raises UsageError.

    Args:
        command: a key of console.COMMANDS.
        arguments: of the command line.
        origin: of the checkpoint that --path names.
    """
    if {"-h", "--help"} & set(arguments):
        return
    for option, meaning in REQUIRED.get(command, {}).items():
        if not any(argument.startswith(option) for argument in arguments):
            raise UsageError(f"{option} is missing: give {meaning}")
    betas = option_value(arguments, "--adam-betas")
    if betas is not None and not is_pair(betas):
        raise UsageError(f"--adam-betas {betas}: two numbers in brackets are needed, for instance '(0.9, 0.98)'")
    task = option_value(arguments, "--task")
    if command == "train":
        arch = option_value(arguments, "--arch") or option_value(arguments, "-a")
        if arch is not None:
            check_family(f"--arch {arch}", arch, task)
        return
    arch, kind = origin.arch, None if origin.arch is None else kind_of(origin.arch)
    if arch is not None and kind is not None:
        if command not in kind.commands:
            raise UsageError(
                f"--path holds {kind.name} (--arch {arch}): give it to fairseq-mega-{alternatives(kind.commands)}"
            )
        if task is not None:
            check_family(f"--path holds a model of --arch {arch}, which", arch, task)


def with_task(command: str, arguments: typing.Sequence[str], origin: Origin) -> typing.List[str]:
    """Add the --task that a checkpoint was trained on, where none is given: fairseq takes another one by default."""
    if command == "train" or origin.task is None or option_value(arguments, "--task") is not None:
        return list(arguments)
    return [*arguments, "--task", origin.task]


def is_pair(text: str) -> bool:
    """Whether a text holds two numbers in brackets."""
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return isinstance(value, (tuple, list)) and [isinstance(x, (int, float)) for x in value] == [True, True]


def check_family(what: str, arch: str, task: typing.Optional[str]) -> None:
    """Refuse an architecture of this package with a task that it is not for; raises UsageError that begins `what`."""
    from fairseq.tasks import TASK_REGISTRY

    kind, chosen = kind_of(arch), TASK_REGISTRY.get(task or "translation")
    if kind is not None and chosen is not None and not kind.fits(chosen):  # what is unknown, the parser names
        given = "without --task it is translation" if task is None else f"found {task}"
        raise UsageError(f"{what} is {kind.name}: give --task {kind.task} ({given})")
