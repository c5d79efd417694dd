"""Print errors of parsers in one line, where fairseq prints a page of options, and describe this package's flags."""

import argparse
import contextlib
import textwrap
import typing

import fairseq_mega
from fairseq_mega.compat.errors import LONGEST

UNKNOWN = "unrecognized arguments: "  # argparse's words


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
        chosen: the one choice to describe, by option; None means all choices.
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


def alternatives(names: typing.Sequence[str]) -> str:
    """Return names as "a, b or c"."""
    return " or ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


class Parser(argparse.ArgumentParser):
    """A parser that prints an error in one line of at most LONGEST characters."""

    def error(self, message: str) -> typing.NoReturn:
        """Print the error in one line and exit with status 2."""
        self.exit(2, f"{self.prog}: error: {textwrap.shorten(message, LONGEST)}\n")


@contextlib.contextmanager
def explained_errors() -> typing.Iterator[None]:
    """Make every parser raise a UsageError instead of printing a page and ending the process."""
    original = argparse.ArgumentParser.error

    def error(self: argparse.ArgumentParser, message: str) -> typing.NoReturn:
        raise UsageError(message)

    argparse.ArgumentParser.error = error  # type: ignore[method-assign]
    try:
        yield
    finally:
        argparse.ArgumentParser.error = original  # type: ignore[method-assign]
