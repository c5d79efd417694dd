"""The commands fairseq-mega-train, -generate, -interactive, -eval-lm and -validate.

Each command runs the fairseq command of the same name with --user-dir set. A user's error is printed in one line; the
exit status is 1 for errors of files and 2 for errors of values. FAIRSEQ_MEGA_TRACEBACK=1 keeps the traceback.
"""

import contextlib
import importlib
import os
import sys
import textwrap
import typing
from pathlib import Path

import torch

import fairseq_mega
from fairseq_mega.compat.errors import in_one_line, is_of_a_file
from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.models.checkpoint_files import origin_of

from .commands import failure, quiet_libraries
from .progress import Progress, progress_lines
from .usage import explained_errors, option_value, plugin_flags

COMMANDS = {
    "train": "fairseq_cli.train",
    "generate": "fairseq_cli.generate",
    "interactive": "fairseq_mega.cli.interactive",
    "eval-lm": "fairseq_cli.eval_lm",
    "validate": "fairseq_cli.validate",
}
FILE_ERROR, VALUE_ERROR = 1, 2


def with_user_dir(arguments: typing.Sequence[str]) -> typing.List[str]:
    """Add this package as --user-dir unless the arguments name another folder that exists, or another plugin."""
    given = option_value(arguments, "--user-dir")
    by_name = given is not None and os.path.basename(os.path.normpath(given)) == "fairseq_mega"
    if given is not None and (os.path.exists(given) or not by_name):
        return list(arguments)
    return [*arguments, "--user-dir", next(iter(fairseq_mega.__path__))]  # the last one counts


def with_task(command: str, arguments: typing.Sequence[str]) -> typing.List[str]:
    """Add the --task of the checkpoint's training unless --task is passed; fairseq's default may be another task.

    Nothing is added for fairseq-train, for --help, and for checkpoints in several files, whose names fairseq builds.

    Raises:
        OSError, ValueError: if the file of --path cannot be read.
    """
    others = ("--task", "--checkpoint-suffix", "--checkpoint-shard-count")
    if command == "train" or is_help(arguments) or any(option_value(arguments, option) for option in others):
        return list(arguments)
    task = origin_of(option_value(arguments, "--path")).task
    return [*arguments, *(["--task", task] if task else [])]


def is_help(arguments: typing.Sequence[str]) -> bool:
    """Return whether a command line requests help."""
    return bool({"-h", "--help"} & set(arguments))


def page_of_help(arguments: typing.Sequence[str]) -> str:
    """Return the page of fairseq-mega-train --help: the options of one model of this package, or all architectures."""
    from fairseq.models import ARCH_MODEL_REGISTRY

    ours = [name for name, model in ARCH_MODEL_REGISTRY.items() if model.__module__.split(".")[0] == "fairseq_mega"]
    arch = option_value(arguments, "--arch", "-a")
    if arch is not None:
        return tail_of_help("train", arguments) if arch in ours else ""
    names = ", ".join(sorted(ours, key=lambda name: (not name.startswith("mega"), name)))
    line = f"Architectures of this package: {names}; examples/MODELS.md describes them."
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
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    if command != "train":
        return plugin_flags({"--task": None})
    arch = option_value(arguments, "--arch", "-a")
    named = {option: option_value(arguments, option) for option in ("--task", "--lr-scheduler")}
    return plugin_flags({"--arch": ARCH_MODEL_NAME_REGISTRY.get(arch, arch), **named})


def shows_progress(arguments: typing.Sequence[str]) -> bool:
    """Return whether a training prints progress lines: one process on a terminal, without --log-format."""
    if not sys.stdout.isatty() or option_value(arguments, "--log-format") or is_help(arguments):
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


def run(command: str, arguments: typing.Optional[typing.Sequence[str]] = None) -> int:
    """Run the fairseq command `command` (a key of COMMANDS) and return the exit status.

    `arguments` defaults to the arguments of the process.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    name, saved = f"fairseq-mega-{command}", sys.argv
    quiet_libraries()
    page = page_of_help(given) if command == "train" and is_help(given) else ""
    if page:
        print(f"{page}\n\n  fairseq-mega-train --help-all   options of every training, and of all models")
        return 0
    given = ["--help" if word == "--help-all" else word for word in given]
    try:
        shown = command == "train" and shows_progress(given)
        as_json = ["--log-format", "json", "--log-interval", option_value(given, "--log-interval") or "20"]
        sys.argv = [name, *with_user_dir(with_task(command, given)), *(as_json if shown else [])]
        with explained_errors(), training_progress(given) if shown else contextlib.nullcontext():
            importlib.import_module(COMMANDS[command]).cli_main()
    except SystemExit as exit_request:
        if exit_request.code == 0 and is_help(given):
            print("\n" + tail_of_help(command, given))
        raise
    except KeyboardInterrupt:
        print(f"{name}: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError as error:
        return failure(name, error)
    except Exception as error:
        line = in_one_line(name, error)
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
