"""Read words of a command line, print errors of parsers in one line, and describe this package's flags."""

import argparse
import contextlib
import textwrap
from typing import Iterator, Mapping, NoReturn, Optional, Sequence

import fairseq_mega
from fairseq_mega.compat.errors import LONGEST

UNKNOWN = "unrecognized arguments: "  # argparse's words
Chosen = Mapping[str, Optional[str]]


class UsageError(ValueError):
    """An error on the command line."""


def option_value(arguments: Sequence[str], *options: str) -> Optional[str]:
    """Return the last value of an option, passed as `--option value` or `--option=value`, or None.

    Args:
        arguments: words of a command line.
        options: the names of the option.
    """
    value = None
    for i, argument in enumerate(arguments):
        name, equals, rest = argument.partition("=")
        if argument in options and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif equals and name in options:
            value = rest
    return value


def plugin_flags(chosen: Optional[Chosen] = None) -> str:
    """Describe the flags of the package's models, tasks and schedules, which fairseq's own --help never shows.

    Args:
        chosen: name of the one model, task or schedule to describe by ``--arch``, ``--task`` or ``--lr-scheduler``, or
            None for all of them; options that are missing are not described. By default all of them are.
    """
    from fairseq.dataclass.utils import gen_parser_from_dataclass
    from fairseq.models import MODEL_DATACLASS_REGISTRY, MODEL_REGISTRY
    from fairseq.optim.lr_scheduler import LR_SCHEDULER_DATACLASS_REGISTRY, LR_SCHEDULER_REGISTRY
    from fairseq.tasks import TASK_DATACLASS_REGISTRY, TASK_REGISTRY

    registries = {
        "--arch": (MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY),
        "--task": (TASK_REGISTRY, TASK_DATACLASS_REGISTRY),
        "--lr-scheduler": (LR_SCHEDULER_REGISTRY, LR_SCHEDULER_DATACLASS_REGISTRY),
    }
    texts = []
    for option, only in (chosen or dict.fromkeys(registries)).items():
        classes, dataclasses = registries[option]
        for name, cls in sorted(classes.items()):
            ours = cls.__module__.split(".")[0] == fairseq_mega.__name__ and name in dataclasses
            if ours and only in (None, name):
                parser = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS, allow_abbrev=False)
                gen_parser_from_dataclass(parser.add_argument_group(f"with {option} {name}"), dataclasses[name]())
                texts.append(parser.format_help().strip())
    return "\n\n".join(texts)


class Parser(argparse.ArgumentParser):
    """A parser that prints an error in one line of at most LONGEST characters."""

    def error(self, message: str) -> NoReturn:
        """Print the error in one line and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {textwrap.shorten(message, LONGEST)}\n")


@contextlib.contextmanager
def explained_errors() -> Iterator[None]:
    """Make every parser raise a UsageError instead of printing a page and ending the process."""
    original = argparse.ArgumentParser.error

    def error(self: argparse.ArgumentParser, message: str) -> NoReturn:
        raise UsageError(message)

    argparse.ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]
