"""Errors of users in one line from fairseq-hydra-train, as from the commands of this package."""

import os
import sys
import types
import typing

from fairseq_mega.compat.patching import wrap

from . import arguments

NAMED = ("task", "criterion", "optimizer", "lr_scheduler")
GROUPS = ("common", "dataset", "distributed_training", "optimization", "checkpoint", "ema", *NAMED, "model")
FULL = "HYDRA_FULL_ERROR"  # lets hydra hand an error on to Python, which prints it


def print_in_one_line() -> None:
    """Let an error of the user's that ends fairseq-hydra-train take one line, once its settings have named the plugin.

    FAIRSEQ_MEGA_TRACEBACK=1, and hydra's own HYDRA_FULL_ERROR=1, keep the traceback.
    """
    if "fairseq_cli.hydra_train" not in sys.modules or FULL in os.environ:
        return
    os.environ[FULL] = "1"
    print_others = sys.excepthook

    def print_error(
        kind: typing.Type[BaseException], error: BaseException, trace: typing.Optional[types.TracebackType]
    ) -> None:
        from fairseq_mega.compat.errors import in_one_line

        line = in_one_line("fairseq-hydra-train", error)
        if line is None:
            print_others(kind, error, trace)
        else:
            sys.stdout.flush()
            print(line, file=sys.stderr)

    sys.excepthook = print_error


def refuse_what_cannot_be() -> None:
    """Refuse the settings that fairseq-train refuses as options: no parser has seen those of fairseq-hydra-train."""
    from fairseq.trainer import Trainer

    if "fairseq_cli.hydra_train" in sys.modules:
        wrap(Trainer, "__init__", _train_checked)


def _train_checked(original: typing.Callable, self: typing.Any, cfg: typing.Any, *args: typing.Any) -> None:
    problem = arguments.impossible(options_of(cfg))
    if problem is not None:
        raise ValueError(problem)
    original(self, cfg, *args)


def options_of(cfg: typing.Any) -> typing.Dict[str, typing.Any]:
    """Return the settings of a training as fairseq-train names its options."""
    found: typing.Dict[str, typing.Any] = {}
    for group in GROUPS:
        found.update(cfg[group] or {})
    found.update({group: cfg[group]["_name"] for group in NAMED if cfg[group]}, arch=found.pop("_name"))
    return found
