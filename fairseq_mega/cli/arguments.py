"""Check the arguments of fairseq's commands before fairseq runs, and add the task of a checkpoint."""

import os
import typing

from fairseq_mega.models.checkpoint_files import CHECKPOINT, Origin
from fairseq_mega.tasks.families import kind_of

from .usage import UsageError, alternatives

# Options that a command requires; without some of them fairseq ends with a traceback.
REQUIRED = {command: {"--path": CHECKPOINT} for command in ("generate", "interactive", "eval-lm", "validate")}


def option_value(arguments: typing.Sequence[str], option: str) -> typing.Optional[str]:
    """Return the last value of `option`, passed as `--option value` or `--option=value`, or None."""
    value = None
    for i, argument in enumerate(arguments):
        if argument == option and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(option + "="):
            value = argument[len(option) + 1 :]
    return value


def requested_arch(arguments: typing.Sequence[str]) -> typing.Optional[str]:
    """Return the value of --arch or -a, or None."""
    return option_value(arguments, "--arch") or option_value(arguments, "-a")


def check_arguments(command: str, arguments: typing.Sequence[str], origin: Origin) -> None:
    """Raise UsageError for arguments on which fairseq would end with a traceback.

    Args:
        command: a key of console.COMMANDS.
        arguments: words of the command line.
        origin: origin of the checkpoint of --path.
    """
    if {"-h", "--help"} & set(arguments):
        return
    for option, meaning in REQUIRED.get(command, {}).items():
        if not any(argument.startswith(option) for argument in arguments):
            raise UsageError(f"{option} is missing: give {meaning}")
        value = option_value(arguments, option)
        if value == "":
            raise UsageError(f"{option} '': give {meaning}")
        one = command in ("eval-lm", "validate")
        if one and value is not None and "://" not in value and os.pathsep in value:
            raise UsageError(f"{option} {value}: fairseq-mega-{command} reads one checkpoint: give one path")
    task = option_value(arguments, "--task")
    if command == "train":
        arch = requested_arch(arguments)
        if arch is None:
            raise UsageError("--arch is missing: give an architecture (--help lists them)")
        check_family(f"--arch {arch}", arch, task)
        return
    arch, kind = origin.arch, None if origin.arch is None else kind_of(origin.arch)
    if arch is not None and kind is not None:
        if command not in kind.commands:
            raise UsageError(
                f"--path holds {kind.name} (--arch {arch}): run fairseq-mega-{alternatives(kind.commands)}"
            )
        if task is not None:
            check_family(f"--path holds a model of --arch {arch}, which", arch, task)


def with_task(command: str, arguments: typing.Sequence[str], origin: Origin) -> typing.List[str]:
    """Add the --task of the checkpoint's training unless --task is passed; fairseq's default may be another task."""
    if command == "train" or origin.task is None or option_value(arguments, "--task") is not None:
        return list(arguments)
    return [*arguments, "--task", origin.task]


def check_family(subject: str, arch: str, task: typing.Optional[str]) -> None:
    """Check that the task fits an architecture of this package.

    Raises:
        UsageError: if the task belongs to other models; the message begins with `subject`.
    """
    from fairseq.tasks import TASK_REGISTRY

    kind, chosen = kind_of(arch), TASK_REGISTRY.get(task or "translation")
    if kind is not None and chosen is not None and not kind.fits(chosen):  # the parser names unknown tasks
        given = "without --task it is translation" if task is None else f"found {task}"
        raise UsageError(f"{subject} is {kind.name}: give --task {kind.task} ({given})")
