"""A training that is finished stays as it is."""

import functools
import logging
import sys
import typing

logger = logging.getLogger("fairseq_mega.compat.finished")


def leave_finished_trainings() -> None:
    """Make no update where the checkpoint has --max-update of them: fairseq makes one more, and then looks.

    fairseq_cli.train sets up logging as it is imported, so that it is mended when it loads its checkpoint.
    """
    from fairseq import checkpoint_utils

    original = checkpoint_utils.load_checkpoint
    if hasattr(original, "leaves_finished"):
        return

    @functools.wraps(original)
    def load_checkpoint(*args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        loaded = original(*args, **kwargs)
        command = sys.modules.get("fairseq_cli.train")
        if command is not None and not hasattr(command.train, "leaves_finished"):
            command.train = _leaving_finished(command.train)  # type: ignore[attr-defined]
        return loaded

    load_checkpoint.leaves_finished = True  # type: ignore[attr-defined]
    checkpoint_utils.load_checkpoint = load_checkpoint


def _leaving_finished(original: typing.Callable) -> typing.Callable:
    """The `train` of fairseq_cli.train that begins no epoch of a finished training."""

    @functools.wraps(original)
    def train(cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
        updates, last = trainer.get_num_updates(), cfg.optimization.max_update
        if last and updates >= last:
            logger.info(f"nothing to train: the checkpoint has {updates} updates, --max-update is {last}")
            return [None], True
        return original(cfg, trainer, *args, **kwargs)

    train.leaves_finished = True  # type: ignore[attr-defined]
    return train
