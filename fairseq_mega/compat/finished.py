"""A training that is finished stays as it is."""

import logging
import sys
import typing

from .patching import wrap

logger = logging.getLogger("fairseq_mega.compat.finished")


def leave_finished_trainings() -> None:
    """Make no update where the checkpoint has --max-update of them: fairseq makes one more, and then looks.

    fairseq_cli.train sets up logging as it is imported, so that it is changed when it loads its checkpoint.
    """
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "load_checkpoint", _load_and_wrap_train)


def _load_and_wrap_train(original: typing.Callable, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    loaded = original(*args, **kwargs)
    command = sys.modules.get("fairseq_cli.train")
    if command is not None:
        wrap(command, "train", _begin_no_finished_training)
    return loaded


def _begin_no_finished_training(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    updates, last = trainer.get_num_updates(), cfg.optimization.max_update
    if last and updates >= last:
        logger.info(f"nothing to train: the checkpoint has {updates} updates, --max-update is {last}")
        return [None], True
    return original(cfg, trainer, *args, **kwargs)
