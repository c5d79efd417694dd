"""Ends of trainings: a finished training is left unchanged, the last update is saved, and no updates is an error."""

import copy
import logging
import math
import os
import re
import typing

from fairseq_mega.compat.files.validations import is_reset, restored_file
from fairseq_mega.compat.patching import globals_of_training, wrap, wrapped
from fairseq_mega.compat.processes.batches import SEED

logger = logging.getLogger("fairseq_mega.compat.processes.skip_finished")


def leave_finished_trainings() -> None:
    """Check before a training whether any update is left.

    fairseq checks only after one more update of a finished training. Where it makes no update (--max-epoch,
    --stop-min-lr), it ends as a success, with an empty folder if --restore-file is in another one.
    """
    from fairseq import checkpoint_utils

    wrap(checkpoint_utils, "load_checkpoint", _load_and_look)


def save_last_epochs() -> None:
    """Save the last update of a training: with --save-interval 5 --max-epoch 9 fairseq loses the last four epochs.

    With --no-last-checkpoints, and an end before the first other checkpoint, fairseq writes no checkpoint.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap(Trainer, "lr_step", _step_and_save)
    wrap(checkpoint_utils, "save_checkpoint", _save_and_note)


def _save_and_note(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, batches: typing.Any, loss: typing.Any
) -> typing.Any:
    """Save, and record in each process whether there was a file to write."""
    epoch, each = batches.epoch, cfg.save_interval_updates
    if batches.end_of_epoch():
        due = not cfg.no_epoch_checkpoints and epoch % cfg.save_interval == 0
    else:
        due = each > 0 and trainer.get_num_updates() % each == 0
    best = loss is not None and not math.isnan(loss)
    trainer.kept = getattr(trainer, "kept", False) or due or best or cfg.no_save or not cfg.no_last_checkpoints
    return original(cfg, trainer, batches, loss)


def _keep_something(trainer: typing.Any, batches: typing.Any, loss: typing.Any) -> None:
    """Save the end of a training that wrote no checkpoint."""
    from fairseq import checkpoint_utils

    if getattr(trainer, "kept", False) or trainer.get_num_updates() == 0:
        return
    saving = copy.copy(trainer.cfg.checkpoint)
    saving.no_last_checkpoints = False
    logger.warning(
        "the training ended before the first checkpoint was due, and --no-last-checkpoints would leave none: the "
        "end is saved nevertheless (--no-save saves nothing)"
    )
    checkpoint_utils.save_checkpoint(saving, trainer, batches, loss)


def _step_and_save(original: typing.Callable, self: typing.Any, epoch: int, *losses: typing.Any) -> typing.Any:
    """Step the schedule, and save if no epoch follows. Only fairseq's loop over epochs passes a loss, which may be
    None."""
    from fairseq import checkpoint_utils

    rate, batches = original(self, epoch, *losses), getattr(self, "batches", None)
    if not losses or batches is None:
        return rate
    saving, updates, limits = self.cfg.checkpoint, self.get_num_updates(), self.cfg.optimization
    each = saving.save_interval_updates
    saved = epoch % saving.save_interval == 0 or (
        each > 0 and updates % each == 0 and updates >= self.cfg.dataset.validate_after_updates
    )
    last = batches.next_epoch_idx > (limits.max_epoch or math.inf) or rate <= limits.stop_min_lr
    if last and not saved:
        checkpoint_utils.save_checkpoint(saving, self, batches, losses[0])
    if last:
        _keep_something(self, batches, losses[0])
    return rate


def _load_and_look(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    restored = restored_file(cfg, trainer.checkpoint_suffix)
    loaded = original(cfg, trainer, *args, **kwargs)
    namespace = globals_of_training()
    if namespace:
        namespace["train"] = wrapped(namespace["train"], _train_unless_finished)
    refuse_to_save_nothing(trainer.cfg)
    lost = 0 if loaded[0] is None or is_reset(cfg, restored) else updates_without_optimizer(trainer)
    reason = nothing_left(trainer, loaded[1], lost)
    if reason is None and lost:
        raise ValueError(
            f"{restored} contains no optimizer state (--no-save-optimizer-state, or an average): training cannot "
            f"continue after its {lost} updates. Give another --save-dir, and --finetune-from-model {restored} to "
            "begin anew with its weights"
        )
    if reason is None:
        _tell_later_checkpoints(cfg, trainer, loaded[1], restored)
        return loaded
    if loaded[0] is None:
        raise ValueError(f"nothing to train: {reason}; change that limit")
    anew = f"--finetune-from-model {restored} to begin anew with its weights"
    if not _is_own(restored, cfg):
        option = "--continue-once" if restored == getattr(cfg, "continue_once", None) else "--restore-file"
        other = "" if restored == cfg.finetune_from_model else f", or give {anew}, in place of {option}"
        raise ValueError(f"nothing to train with {restored}: {reason}; change that limit{other}")
    if trainer.other_data:
        raise ValueError(
            f"nothing to train: {reason}, but {restored} was trained with other validation data. Give another "
            f"--save-dir, and {anew}"
        )
    asked = trainer.cfg.common.seed
    seed = loaded[0].get("train_iterator", {}).get(SEED, asked)
    if seed != asked:
        raise ValueError(
            f"nothing to train: {reason}, but {restored} was trained with --seed {seed}, not {asked}. Give another "
            f"--save-dir for a training with --seed {asked}, or give --seed {seed}"
        )
    logger.info(f"nothing to train: {reason}")
    trainer.finished = True
    return loaded


def _is_own(restored: str, cfg: typing.Any) -> bool:
    """Return whether a training continues a checkpoint of its own --save-dir."""
    return bool(restored) and os.path.realpath(os.path.dirname(restored)) == os.path.realpath(cfg.save_dir)


def _tell_later_checkpoints(cfg: typing.Any, trainer: typing.Any, batches: typing.Any, restored: str) -> None:
    """Warn of checkpoints of another training in --save-dir that count as this training's newest, or get replaced."""
    if cfg.no_save or trainer.data_parallel_rank != 0 or not os.path.isdir(cfg.save_dir):
        return
    best = os.path.join(cfg.save_dir, f"checkpoint_best{trainer.checkpoint_suffix}.pt")
    begins = trainer.get_num_updates() == 0 and not _is_own(restored, cfg)
    if begins and os.path.exists(best) and not trainer.cfg.dataset.disable_validation:
        logger.warning(
            f"this training begins with update 0 and will replace {best} of another training: give --restore-file "
            f"{best} to continue that one, or another --save-dir to begin anew"
        )
    later = later_checkpoints(os.listdir(cfg.save_dir), batches.next_epoch_idx, trainer.get_num_updates())
    if later:
        more = f" and {len(later) - 1} more" if later[1:] else ""
        logger.warning(
            f"{cfg.save_dir} contains {later[0]}{more} of a training that went further: this one begins with epoch "
            f"{batches.next_epoch_idx}, after {trainer.get_num_updates()} updates. --keep-last-epochs, "
            "--keep-interval-updates and averages of the last checkpoints would treat these as the newest: move "
            "them away, or give another --save-dir"
        )


def later_checkpoints(files: typing.Iterable[str], epoch: int, updates: int) -> typing.List[str]:
    """Return the names of checkpoints that a training has not written yet.

    Args:
        files: names of all files in its folder.
        epoch: the one that it begins with.
        updates: the number that it has made.
    """
    found = []
    for name in sorted(files):
        of_epoch, within = re.fullmatch(r"checkpoint(\d+)\.pt", name), re.fullmatch(r"checkpoint_\d+_(\d+)\.pt", name)
        if of_epoch:
            later = int(of_epoch[1]) >= epoch
        else:
            later = int(within[1]) > updates if within else updates == 0 and name.startswith("checkpoint.best_")
        found += [name] if later else []
    return found


def updates_without_optimizer(trainer: typing.Any) -> int:
    """Return the updates of the loaded checkpoint if it has no optimizer, as fairseq then counts from 0 again; else
    0."""
    history = getattr(trainer, "_optim_history", None)
    return history[-1].get("num_updates", 0) if history and trainer.get_num_updates() == 0 else 0


def nothing_left(trainer: typing.Any, batches: typing.Any, lost: int = 0) -> typing.Optional[str]:
    """Return the reason why no update would be made, or None.

    Args:
        trainer: with its checkpoint loaded.
        batches: the iterator of its epochs.
        lost: see :func:`updates_without_optimizer`.
    """
    limits, updates, epoch = trainer.cfg.optimization, lost or trainer.get_num_updates(), batches.next_epoch_idx
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


def _train_unless_finished(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, task: typing.Any, batches: typing.Any
) -> typing.Any:
    if getattr(trainer, "finished", False):
        return [None], True
    trainer.batches = batches
    losses, stop = original(cfg, trainer, task, batches)
    if stop:
        _keep_something(trainer, batches, losses[0])
    return losses, stop


def refuse_to_save_nothing(cfg: typing.Any) -> None:
    """Raise a ValueError for options that leave no checkpoint, unless --no-save is given."""
    saving = cfg.checkpoint
    some = saving.no_save or saving.save_interval_updates > 0 or not cfg.dataset.disable_validation
    if not some and saving.no_last_checkpoints and saving.no_epoch_checkpoints:
        raise ValueError(
            "--no-last-checkpoints, --no-epoch-checkpoints and --disable-validation leave no checkpoint: leave one of "
            "them out, or give --no-save as well"
        )
