"""Arguments of fairseq's commands: those that are refused before fairseq sees them, and the task of a checkpoint."""

import typing

from fairseq_mega.compat.patches.paths import split
from fairseq_mega.models.checkpoint_files import CHECKPOINT, Origin
from fairseq_mega.tasks.families import LANGUAGE_MODEL, kind_of

from .usage import UsageError, alternatives

# Options that a command needs; fairseq finds some of them missing in a traceback.
REQUIRED = {command: {"--path": CHECKPOINT} for command in ("generate", "interactive", "eval-lm", "validate")}


def option_value(arguments: typing.Sequence[str], option: str) -> typing.Optional[str]:
    """The last value given to `option`, as `--option value` or `--option=value`, or None."""
    value = None
    for i, argument in enumerate(arguments):
        if argument == option and i + 1 < len(arguments):
            value = arguments[i + 1]
        elif argument.startswith(option + "="):
            value = argument[len(option) + 1 :]
    return value


def given_arch(arguments: typing.Sequence[str]) -> typing.Optional[str]:
    """Return the value of --arch or -a, or None."""
    return option_value(arguments, "--arch") or option_value(arguments, "-a")


def check_arguments(command: str, arguments: typing.Sequence[str], origin: Origin) -> None:
    """Refuse arguments that fairseq would end over in a traceback; raises UsageError.

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
        value = option_value(arguments, option)
        if value == "":
            raise UsageError(f"{option} '': give {meaning}")
        one = command in ("eval-lm", "validate")
        if one and value is not None and "://" not in value and len(split(value)) > 1:
            raise UsageError(f"{option} {value}: fairseq-mega-{command} reads one checkpoint: give one path")
    task = option_value(arguments, "--task")
    if command == "train":
        arch = given_arch(arguments)
        if arch is not None:
            check_family(f"--arch {arch}", arch, task)
        return
    arch, kind = origin.arch, None if origin.arch is None else kind_of(origin.arch)
    if arch is not None and kind is not None:
        if command not in kind.commands:
            raise UsageError(
                f"--path holds {kind.name} (--arch {arch}): give it to fairseq-mega-{alternatives(kind.commands)}"
            )
        for option in ("--constraints", "--score-reference"):
            if command == "interactive" and kind is LANGUAGE_MODEL and option in arguments:
                raise UsageError(f"{option} is for translators, and --path holds {kind.name}: leave it out")
        if task is not None:
            check_family(f"--path holds a model of --arch {arch}, which", arch, task)


def with_task(command: str, arguments: typing.Sequence[str], origin: Origin) -> typing.List[str]:
    """Add the --task that a checkpoint was trained on, where none is given: the default of fairseq is another task."""
    if command == "train" or origin.task is None or option_value(arguments, "--task") is not None:
        return list(arguments)
    return [*arguments, "--task", origin.task]


def check_family(subject: str, arch: str, task: typing.Optional[str]) -> None:
    """Refuse an architecture of this package with a task that it is not for.

    Raises:
        UsageError: whose message begins with `subject`.
    """
    from fairseq.tasks import TASK_REGISTRY

    kind, chosen = kind_of(arch), TASK_REGISTRY.get(task or "translation")
    if kind is not None and chosen is not None and not kind.fits(chosen):  # the parser names unknown tasks
        given = "without --task it is translation" if task is None else f"found {task}"
        raise UsageError(f"{subject} is {kind.name}: give --task {kind.task} ({given})")
