"""The commands fairseq-mega-train, -generate, -interactive, -eval-lm and -validate.

Each command runs the fairseq command of the same name with --user-dir set. A user's error is printed in one line; the
exit status is 1 for errors of files and 2 for errors of values. FAIRSEQ_MEGA_TRACEBACK=1 keeps the traceback.
"""

import contextlib
import importlib
import os
import sys
from pathlib import Path
from typing import ContextManager, List, Optional, Sequence

import fairseq_mega
from fairseq_mega.compat.errors import in_one_line, is_of_a_file

from .commands import failure, quiet_libraries
from .pages import architectures, first_page
from .progress import Progress, progress_lines
from .usage import explained_errors, option_value, plugin_flags

COMMANDS = {
    "train": "fairseq_cli.train",
    "generate": "fairseq_cli.generate",
    "interactive": "fairseq_mega.cli.interactive",
    "eval-lm": "fairseq_cli.eval_lm",
    "validate": "fairseq_cli.validate",
}
CONFIGURED = ("train", "generate", "interactive")
FILE_ERROR, VALUE_ERROR = 1, 2


def with_user_dir(arguments: Sequence[str]) -> List[str]:
    """Add this package as --user-dir unless the arguments name another folder that exists, or another plugin."""
    given = option_value(arguments, "--user-dir")
    by_name = given is not None and os.path.basename(os.path.normpath(given)) == "fairseq_mega"
    if given is not None and (os.path.exists(given) or not by_name):
        return list(arguments)
    return [*arguments, "--user-dir", next(iter(fairseq_mega.__path__))]  # the last one counts


def with_task(command: str, arguments: Sequence[str]) -> List[str]:
    """Add the --task of the checkpoint's training unless --task is passed; fairseq's default may be another task.

    Nothing is added for fairseq-train, and for checkpoints in several files, whose names fairseq builds.

    Raises:
        OSError, ValueError: if the file of --path cannot be read.
    """
    from fairseq_mega.models.checkpoint_files import origin_of

    others = ("--task", "--checkpoint-suffix", "--checkpoint-shard-count")
    if command == "train" or any(option_value(arguments, option) for option in others):
        return list(arguments)
    task = origin_of(option_value(arguments, "--path")).task
    return [*arguments, *(["--task", task] if task else [])]


def print_help(command: str, arguments: Sequence[str]) -> None:
    """Print the first page; with --arch of this package the options of the model; with --help-all fairseq's page, too.

    fairseq's page lacks the flags of models, tasks and schedules; those of this package follow it.
    """
    arch = option_value(arguments, "--arch", "-a") if command == "train" else None
    name = f"fairseq-mega-{command}"
    if "--help-all" in arguments or arch not in (None, *architectures()):
        sys.argv = [name, "--help", *with_user_dir(arguments)]
        with contextlib.suppress(SystemExit):
            importlib.import_module(COMMANDS[command]).cli_main()
        page = "\n" + flags_of(command, arguments)
    else:
        page = first_page(command) if arch is None else flags_of(command, arguments)
        page += f"\n\n  {name} --help-all   all options"
    print(page, flush=True)


def flags_of(command: str, arguments: Sequence[str]) -> str:
    """Return the flags of this package for a command; for a training those of the --arch, --task and --lr-scheduler."""
    from fairseq.models import ARCH_MODEL_NAME_REGISTRY

    if command != "train":
        return plugin_flags({"--task": None})
    arch = option_value(arguments, "--arch", "-a")
    named = {option: option_value(arguments, option) for option in ("--task", "--lr-scheduler")}
    return plugin_flags({"--arch": ARCH_MODEL_NAME_REGISTRY.get(arch, arch), **named})


def shows_progress(arguments: Sequence[str]) -> bool:
    """Return whether a training prints progress lines: one process on a terminal, without --log-format."""
    if not sys.stdout.isatty() or option_value(arguments, "--log-format"):
        return False
    import torch

    alone = option_value(arguments, "--distributed-world-size") in (None, "1") and "RANK" not in os.environ
    return alone and ("--cpu" in arguments or torch.cuda.device_count() < 2)


def training_progress(arguments: Sequence[str]) -> ContextManager[None]:
    """Print progress lines in place of the log, which goes into a file of --save-dir."""
    updates, hours = (option_value(arguments, option) for option in ("--max-update", "--stop-time-hours"))
    progress = Progress(
        updates=int(updates) if updates and updates.isdigit() else None, seconds=3600 * float(hours) if hours else None
    )
    return progress_lines(progress, Path(option_value(arguments, "--save-dir") or "checkpoints") / "train.log")


def run(command: str, arguments: Optional[Sequence[str]] = None) -> int:
    """Run the fairseq command `command` (a key of COMMANDS) and return the exit status.

    `arguments` defaults to the arguments of the process, which is then configured for training and decoding.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    name, saved = f"fairseq-mega-{command}", sys.argv
    quiet_libraries()
    try:
        if {"-h", "--help", "--help-all"} & {*given}:
            print_help(command, given)
            return 0
        if arguments is None and command in CONFIGURED:
            from fairseq_mega.compat.processes.cpu_process import configure_process

            configure_process()
        shown = command == "train" and shows_progress(given)
        as_json = ["--log-format", "json", "--log-interval", option_value(given, "--log-interval") or "20"]
        sys.argv = [name, *with_user_dir(with_task(command, given)), *(as_json if shown else [])]
        with explained_errors(), training_progress(given) if shown else contextlib.nullcontext():
            importlib.import_module(COMMANDS[command]).cli_main()
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
    return run("train")


def generate() -> int:
    """Entry point of fairseq-mega-generate."""
    return run("generate")


def interactive() -> int:
    """Entry point of fairseq-mega-interactive."""
    return run("interactive")


def eval_lm() -> int:
    """Entry point of fairseq-mega-eval-lm."""
    return run("eval-lm")


def validate() -> int:
    """Entry point of fairseq-mega-validate."""
    return run("validate")
