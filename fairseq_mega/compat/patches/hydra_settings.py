"""Check the settings of fairseq-hydra-train, which no parser of options checks."""

import sys
import typing
from pathlib import Path

from fairseq_mega.compat.patching import wrap

from . import arguments, one_line_errors

NAMED = ("task", "criterion", "optimizer", "lr_scheduler")
GROUPS = ("common", "dataset", "distributed_training", "optimization", "checkpoint", "ema", *NAMED, "model")


def refuse_what_cannot_be() -> None:
    """Raise a ValueError for settings of fairseq-hydra-train that fairseq-train rejects as options."""
    from fairseq.trainer import Trainer

    if one_line_errors.command_of(Path(sys.argv[0])) == "fairseq-hydra-train":
        wrap(Trainer, "__init__", _train_checked)


def _train_checked(original: typing.Callable, self: typing.Any, cfg: typing.Any, *args: typing.Any) -> None:
    problem = arguments.impossible(options_of(cfg))
    if problem is not None:
        raise ValueError(problem)
    original(self, cfg, *args)


def options_of(cfg: typing.Any) -> typing.Dict[str, typing.Any]:
    """Return the settings of a training by the names of fairseq-train's options."""
    found: typing.Dict[str, typing.Any] = {}
    for group in GROUPS:
        found.update(cfg[group] or {})
    found.update({group: cfg[group]["_name"] for group in NAMED if cfg[group]}, arch=found.pop("_name"))
    return found
