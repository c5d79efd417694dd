"""The commands fairseq-mega-train, -generate, -interactive, -eval-lm and -validate.

Each command runs the fairseq command of the same name with --user-dir set. A user's error is printed in one line; the
exit status is 1 for errors of files and 2 for errors of values. FAIRSEQ_MEGA_TRACEBACK=1 keeps the traceback.
"""

import argparse
import contextlib
import importlib
import logging
import os
import sys
import textwrap
import typing
from pathlib import Path

import torch
from omegaconf import DictConfig

import fairseq_mega
from fairseq_mega.compat.errors import in_one_line, is_of_a_file
from fairseq_mega.compat.features.architectures import architectures
from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.models.checkpoint_files import Origin, origin_of

from .arguments import check_arguments, option_value, requested_arch, with_task
from .commands import logged_output, lost_output, quiet_libraries, reader_is_gone
from .progress import Progress, progress_lines
from .usage import UsageError, explained_errors, model_of, plugin_flags

COMMANDS = {
    "train": "fairseq_cli.train",
    "generate": "fairseq_cli.generate",
    "interactive": "fairseq_mega.cli.interactive",
    "eval-lm": "fairseq_cli.eval_lm",
    "validate": "fairseq_cli.validate",
}
LOGS_SETTINGS = ("fairseq_cli.interactive", "fairseq_cli.generate", "fairseq_cli.eval_lm", "fairseq_cli.validate")
FILE_ERROR, VALUE_ERROR = 1, 2


def package_folder() -> str:
    """Return the folder of the installed package, the value of fairseq's --user-dir."""
    return next(iter(fairseq_mega.__path__))


def with_user_dir(arguments: typing.Sequence[str]) -> typing.List[str]:
    """Add --user-dir unless the arguments name another plugin.

    Raises:
        UsageError: if --user-dir is another copy of this package, which is imported already.
    """
    ours = package_folder()
    given = option_value(arguments, "--user-dir")
    if given is None:
        return ["--user-dir", ours, *arguments]
    if os.path.basename(os.path.normpath(given)) != "fairseq_mega":
        return list(arguments)
    if os.path.exists(given) and not os.path.samefile(given, ours):
        raise UsageError(
            f"--user-dir {given} is not the copy of the package that this command uses ({ours}): "
            "omit --user-dir, or install the other copy (pip install -e)"
        )
    return [*arguments, "--user-dir", ours]  # the last one counts


def checkpoint_origin(command: str, arguments: typing.Sequence[str]) -> Origin:
    """Return the origin of the checkpoint of --path; raise at once if the file cannot be read.

    The origin is empty for fairseq-train, for --help, and for checkpoints in several files, whose names fairseq builds.
    """
    several = any(option_value(arguments, option) for option in ("--checkpoint-suffix", "--checkpoint-shard-count"))
    if command == "train" or several or {"-h", "--help"} & set(arguments):
        return Origin()
    return origin_of(option_value(arguments, "--path"))


def page_of_help(arguments: typing.Sequence[str]) -> str:
    """Return the page of fairseq-mega-train --help: the options of one model of this package, or all architectures."""
    arch = requested_arch(arguments)
    if arch is not None:
        return tail_of_help("train", arguments) if arch in architectures() else ""
    line = f"Architectures of this package: {', '.join(architectures())}; examples/MODELS.md describes them."
    return "\n".join(
        [
            "Train a model: fairseq-mega-train DATA --arch NAME [OPTION]...",
            "",
            "  fairseq-mega-train --arch NAME --help   options of this model; with --task NAME, of the task, too",
            "",
            *textwrap.wrap(line, 100, break_on_hyphens=False),
        ]
    )


def tail_of_help(command: str, arguments: typing.Sequence[str]) -> str:
    """Return the flags of this package, printed below fairseq's page of options; of models only the one of --arch."""
    if command != "train":
        return plugin_flags(["--task"])
    arch = requested_arch(arguments)
    named = {option: option_value(arguments, option) for option in ("--task", "--lr-scheduler")}
    return plugin_flags(chosen={"--arch": None if arch is None else model_of(arch), **named})


def shows_progress(arguments: typing.Sequence[str]) -> bool:
    """Return whether a training prints progress lines: one process on a terminal, without --log-format."""
    if not sys.stdout.isatty() or option_value(arguments, "--log-format") or {"-h", "--help"} & set(arguments):
        return False
    alone = option_value(arguments, "--distributed-world-size") in (None, "1") and "RANK" not in os.environ
    return alone and ("--cpu" in arguments or torch.cuda.device_count() < 2)


def training_progress(arguments: typing.Sequence[str]) -> typing.ContextManager[None]:
    """Print progress lines in place of the log, which goes into a file of --save-dir."""
    updates, hours = (option_value(arguments, option) for option in ("--max-update", "--stop-time-hours"))
    progress = Progress(
        updates=int(updates) if updates and updates.isdigit() else None,
        seconds=3600 * float(hours) if hours else None,
    )
    return progress_lines(progress, Path(option_value(arguments, "--save-dir") or "checkpoints") / "train.log")


@contextlib.contextmanager
def settings_unlogged() -> typing.Iterator[None]:
    """Drop the dump of all settings, thousands of characters, that commands other than fairseq-train log first."""

    def other(record: logging.LogRecord) -> bool:
        return not isinstance(record.msg, (DictConfig, argparse.Namespace))

    loggers = [logging.getLogger(name) for name in LOGS_SETTINGS]
    for logger in loggers:
        logger.addFilter(other)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(other)


def run(command: str, arguments: typing.Optional[typing.Sequence[str]] = None) -> int:
    """Run the fairseq command `command` (a key of COMMANDS) and return the exit status.

    `arguments` defaults to the arguments of the process.
    """
    try:
        return _run(command, arguments)
    except BrokenPipeError:
        if reader_is_gone():
            return FILE_ERROR
        raise


def _run(command: str, arguments: typing.Optional[typing.Sequence[str]]) -> int:
    given = list(sys.argv[1:] if arguments is None else arguments)
    name, saved = f"fairseq-mega-{command}", sys.argv
    quiet_libraries()
    page = page_of_help(given) if command == "train" and {"-h", "--help"} & set(given) else ""
    if page:
        print(f"{page}\n\n  fairseq-mega-train --help-all   options of every training, and of all models")
        return 0
    given = ["--help" if word == "--help-all" else word for word in given]
    try:
        origin = checkpoint_origin(command, given)
        check_arguments(command, given, origin)
        shown = command == "train" and shows_progress(given)
        as_json = ["--log-format", "json", "--log-interval", option_value(given, "--log-interval") or "20"]
        sys.argv = [name, *with_user_dir(with_task(command, given, origin)), *(as_json if shown else [])]
        of_results = contextlib.nullcontext() if command == "train" else logged_output()  # a training goes on
        progress = training_progress(given) if shown else contextlib.nullcontext()
        with explained_errors(), settings_unlogged(), of_results, progress:
            importlib.import_module(COMMANDS[command]).cli_main()
    except SystemExit as exit_request:
        if exit_request.code == 0 and {"-h", "--help"} & set(given):
            print("\n" + tail_of_help(command, given))
        raise
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        raise
    except Exception as error:
        problem = lost_output()
        line = in_one_line(name, error) if problem is None else f"{name}: error: {problem}"
        if line is None:
            raise
        print(line, file=sys.stderr)
        return FILE_ERROR if is_of_a_file(error) else VALUE_ERROR
    finally:
        sys.argv = saved
    return 0


def train() -> int:
    """Entry point of fairseq-mega-train."""
    configure_process()
    return run("train")


def generate() -> int:
    """Entry point of fairseq-mega-generate."""
    configure_process()
    return run("generate")


def interactive() -> int:
    """Entry point of fairseq-mega-interactive."""
    configure_process()
    return run("interactive")


def eval_lm() -> int:
    """Entry point of fairseq-mega-eval-lm."""
    return run("eval-lm")


def validate() -> int:
    """Entry point of fairseq-mega-validate."""
    return run("validate")
