"""A training that is finished stays as it is; one that could make no update is an error."""

import logging
import os
import typing

from .patching import wrap, wrapped
from .validations import globals_of_training, restored_file

logger = logging.getLogger("fairseq_mega.compat.finished")


def leave_finished_trainings() -> None:
    """Look before a training whether anything is left to train.

    fairseq makes one more update of a finished training, and then looks; where it makes none (--max-epoch,
    --stop-min-lr), it ends as if all were done, with an empty folder where --restore-file stands in another one.
    """
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "load_checkpoint", _load_and_look)


def _load_and_look(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    restored = restored_file(cfg, trainer.checkpoint_suffix)
    loaded = original(cfg, trainer, *args, **kwargs)
    reason = nothing_left(trainer, loaded[1])
    if reason is None:
        return loaded
    if loaded[0] is None:
        raise ValueError(f"nothing to train: {reason}; change that limit")
    own = os.path.realpath(os.path.dirname(restored)) == os.path.realpath(cfg.save_dir)
    anew = f"--finetune-from-model {restored} to begin anew with its weights"
    if not own:
        other = "" if restored == cfg.finetune_from_model else f", or give {anew}, in place of --restore-file"
        raise ValueError(f"nothing to train with {restored}: {reason}; change that limit{other}")
    if trainer.other_data:
        raise ValueError(
            f"nothing to train: {reason}, but {restored} was trained with other validation data. Give another "
            f"--save-dir, and {anew}"
        )
    logger.info(f"nothing to train: {reason}")
    namespace = globals_of_training()
    if namespace:
        trainer.finished = True
        namespace["train"] = wrapped(namespace["train"], _begin_no_finished_training)
    return loaded


def nothing_left(trainer: typing.Any, batches: typing.Any) -> typing.Optional[str]:
    """Reason why no update would be made, or None.

    Args:
        trainer: with its checkpoint loaded.
        batches: the iterator of its epochs.
    """
    limits, updates, epoch = trainer.cfg.optimization, trainer.get_num_updates(), batches.next_epoch_idx
    if limits.max_update and updates >= limits.max_update:
        return f"the checkpoint has {updates} updates, --max-update is {limits.max_update}"
    if limits.max_epoch and epoch > limits.max_epoch:
        return f"the next epoch is number {epoch}, --max-epoch is {limits.max_epoch}"
    rate, hours = trainer.get_lr(), trainer._previous_training_time / 3600
    if rate <= limits.stop_min_lr:
        return f"the learning rate is {rate:g}, --stop-min-lr is {limits.stop_min_lr:g}"
    if 0 < limits.stop_time_hours < hours:
        return f"the checkpoint took {hours:.4g} hours, --stop-time-hours is {limits.stop_time_hours:g}"
    patience, waited = trainer.cfg.checkpoint.patience, getattr(trainer.stop_early, "num_runs", 0)
    if 0 < patience <= waited:
        return f"none of the last {waited} validations was better, --patience is {patience}"
    return None


def _begin_no_finished_training(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    if getattr(trainer, "finished", False):
        return [None], True
    return original(cfg, trainer, *args, **kwargs)
