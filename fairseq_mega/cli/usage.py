"""Print errors of parsers in one line with the remedy, where fairseq prints a page of options."""

import argparse
import contextlib
import difflib
import pathlib
import re
import shlex
import sys
import typing

import fairseq_mega

CHOICE = re.compile(r"argument (\S+): invalid choice: '?(.*?)'? \(choose from (.*)\)", re.DOTALL)
VALUE = re.compile(r"argument (\S+): invalid (\S+) value: (.*)", re.DOTALL)
UNKNOWN = "unrecognized arguments: "
KINDS = {"int": "a whole number", "float": "a number", "<lambda>": "a number, or several separated by commas"}
MANY = 12  # names that a message lists at most


class UsageError(ValueError):
    """An error on the command line."""


def plugin_parsers(
    kinds: typing.Container[str] = ("--arch", "--task", "--lr-scheduler"),
) -> typing.Iterator[typing.Tuple[str, argparse.ArgumentParser]]:
    """Yield a title such as "--arch mega" and a parser of its flags, for every choice that this package adds."""
    from fairseq.dataclass.utils import gen_parser_from_dataclass
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY, LR_SCHEDULER_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    for option, classes, dataclasses in (
        ("--arch", MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
        ("--task", TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        ("--lr-scheduler", LR_SCHEDULER_REGISTRY, LR_SCHEDULER_DATACLASS_REGISTRY),
    ):
        for name, cls in sorted(classes.items()):
            dataclass = dataclasses.get(name)
            ours = cls.__module__.split(".")[0] == fairseq_mega.__name__ and dataclass is not None
            if option not in kinds or not ours:
                continue
            parser = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS, allow_abbrev=False)
            gen_parser_from_dataclass(parser.add_argument_group(f"with {option} {name}"), dataclass())
            yield f"{option} {name}", parser


def plugin_flags(
    kinds: typing.Container[str] = ("--arch", "--task", "--lr-scheduler"),
    chosen: typing.Optional[typing.Mapping[str, typing.Optional[str]]] = None,
) -> str:
    """Describe the flags of the package's models, tasks and schedules, which fairseq's own --help never shows.

    Args:
        kinds: options whose choices are described.
        chosen: the one choice to describe, by option; None stands for all choices.
    """
    texts = []
    for title, parser in plugin_parsers(kinds):
        kind, _, name = title.partition(" ")
        if (chosen or {}).get(kind) in (None, name):
            texts.append(parser.format_help().strip())
    return "\n\n".join(texts)


def model_of(arch: str) -> str:
    """Return the name of an architecture's model."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    return str(ARCH_MODEL_NAME_REGISTRY.get(arch, arch))


def options_of(parser: argparse.ArgumentParser) -> typing.List[str]:
    """Return every option of a parser and its sub-commands."""
    known = list(parser._option_string_actions)
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                known += options_of(command)
    return known


def commands_with(parser: argparse.ArgumentParser, option: str) -> typing.List[str]:
    """Return the names of the sub-commands of a parser that have an option."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return [
        name for action in found for name, command in action.choices.items() if option in command._option_string_actions
    ]


def alternatives(names: typing.Sequence[str]) -> str:
    """Return names as "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def explain(parser: argparse.ArgumentParser, message: str) -> str:
    """Add the remedy to the message of an argparse error."""
    choice, value = CHOICE.fullmatch(message), VALUE.fullmatch(message)
    if choice is not None:
        option, given = choice[1], choice[2]
        names = [name.strip(" '\"") for name in choice[3].split(",")]
        near = difflib.get_close_matches(given, names, 3)
        known = near or (names if len(names) <= MANY else ["one of the names in --help"])
        return f"{option} {given} is unknown: give {alternatives(known)}"
    if value is not None:
        return f"{value[1]} {value[3]}: give {KINDS.get(value[2], 'a value of type ' + value[2])}"
    if message.startswith(UNKNOWN):
        words = message[len(UNKNOWN) :].split()
        unknown = next((word.split("=")[0] for word in words if word.startswith("-")), None)
        if unknown is None:
            return f"{message}: only the data folder is given without an option; quote names with spaces"
        near = difflib.get_close_matches(unknown, sorted(set(options_of(parser))), 3, 0.7)
        try:
            owners = [name for name, flags in plugin_parsers() if unknown in flags._option_string_actions]
        except ImportError:  # before there is an environment with fairseq
            owners = []
        hints = [f"it requires {alternatives(owners)}"] if owners else []
        others = commands_with(parser, unknown)
        hints += [f"it is an option of {', '.join(others[:3])}"] if others and not owners else []
        hints += [f"do you mean {alternatives(near)}?"] if near and not (owners or others) else []
        return f"the option {unknown} is unknown here: {'; '.join(hints) or 'omit it'} (--help lists all options)"
    if message == "the following arguments are required: data":
        return "the data folder is missing: give the folder as the first argument"
    return message if ": give " in message else f"{message} (see --help)"


def joining(files: typing.Sequence[pathlib.Path]) -> str:
    """Return the shell command that joins files, or the files of one folder."""
    names = [shlex.quote(str(file)) for file in files]
    if len(files) == 1 and files[0].is_dir():
        texts = "*.txt" if any(files[0].glob("*.txt")) else "*"
        names = [f"{names[0]}/{texts}"]
    elif len(files) > MANY and len({(file.parent, file.suffix) for file in files}) == 1:
        names = [f"{shlex.quote(str(files[0].parent))}/*{files[0].suffix}"]
    return f"cat {' '.join(names)} >all.txt"


def too_many(given: typing.Sequence[str], word: str) -> str:
    """Return the remedy for a word that follows the value of an option.

    Args:
        given: words of the command line.
        word: the word of ``given`` that belongs to no option.
    """
    option = next((place for place in range(given.index(word), -1, -1) if given[place].startswith("-")), None)
    if option is None:
        return f"{word} belongs to no option: give {word} after its option (--help lists all options)"
    end = next((place for place in range(option + 1, len(given)) if given[place].startswith("-")), len(given))
    name, values = given[option].partition("=")[0], list(given[option + 1 : end])
    whole = " ".join(values)
    if pathlib.Path(whole).exists():
        return f"{name}: a name with spaces requires quotes: give {name} {shlex.quote(whole)}"
    files = [pathlib.Path(value) for value in values]
    if all(file.is_file() for file in files):
        return f"{name} reads one file, found {len(files)}: run `{joining(files)}`, then give {name} all.txt"
    return f"{name} has one value, found {len(values)} words: give one (a name with spaces requires quotes)"


class Parser(argparse.ArgumentParser):
    """A parser that prints an error in one line."""

    def parse_args(self, args: typing.Any = None, namespace: typing.Any = None) -> typing.Any:
        """Parse a command line as argparse does; the error for surplus words names the option and the remedy."""
        given = list(sys.argv[1:] if args is None else args)
        found, unknown = self.parse_known_args(given, namespace)
        if unknown and not any(word.startswith("-") for word in unknown):
            self.error(too_many(given, unknown[0]))
        if unknown:
            self.error(UNKNOWN + " ".join(unknown))
        return found

    def error(self, message: str) -> typing.NoReturn:
        """Print the error in one line and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {explain(self, message)}\n")


@contextlib.contextmanager
def explained_errors() -> typing.Iterator[None]:
    """Make every parser raise a UsageError instead of printing a page and ending the process."""
    original = argparse.ArgumentParser.error

    def error(self: argparse.ArgumentParser, message: str) -> typing.NoReturn:
        raise UsageError(explain(self, message))

    argparse.ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]
