"""Continue trainings: leave a finished one unchanged, and save the last update."""

import logging
import math
import os
import types
from typing import Any, Callable, Iterator, Optional

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around
from fairseq_mega.compat.processes.batches import SEED

logger = logging.getLogger("fairseq_mega.compat.processes.skip_finished")


def keep_batches(call: hooks.Call) -> Iterator[None]:
    """Keep the batches of the present epoch in the trainer, for checkpoints (event "batches")."""
    yield
    call.arguments["self"].batches = call.result


def look_for_updates(call: hooks.Call) -> Iterator[None]:
    """End a training without updates (event "restore").

    fairseq notices the end of a finished training only after one more update, and with --max-epoch also ends another
    training as a success, with an empty folder.

    Raises:
        ValueError: if no update is left, unless the same training has finished in --save-dir.
    """
    cfg, trainer = call.arguments["cfg"], call.arguments["trainer"]
    restored = restored_file(cfg, trainer.checkpoint_suffix)
    yield
    extra_state, batches = call.result[0] or {}, call.result[1]
    if cfg.reset_optimizer or cfg.reset_meters or restored == cfg.finetune_from_model:
        trainer._previous_training_time = 0  # of the other training
    reason = nothing_left(trainer, batches)
    if reason is None:
        return
    own = bool(restored) and os.path.realpath(os.path.dirname(restored)) == os.path.realpath(cfg.save_dir)
    if not (extra_state and own):
        raise ValueError(f"nothing to train with {restored or 'no checkpoint'}: {reason}; change that limit")
    seed, requested = extra_state.get("train_iterator", {}).get(SEED), trainer.cfg.common.seed
    if seed not in (None, requested):
        raise ValueError(
            f"nothing to train: {reason}, but {restored} is of --seed {seed}, not {requested}; give another --save-dir"
        )
    logger.info(f"nothing to train: {reason}")
    call.result = (call.result[0], types.SimpleNamespace(next_epoch_idx=math.nan))  # which ends the loop over epochs


def restored_file(cfg: Any, suffix: str) -> str:
    """Return the path of the checkpoint that a training begins with, "" if there is none yet."""
    if cfg.restore_file != "checkpoint_last.pt":
        return str(cfg.restore_file).replace(".pt", f"{suffix}.pt")
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    return last if os.path.exists(last) else str(cfg.finetune_from_model or "")


def nothing_left(trainer: Any, batches: Any) -> Optional[str]:
    """Return the reason why no update would be made, or None.

    Args:
        trainer: with its checkpoint loaded.
        batches: the iterator of its epochs.
    """
    limits, updates, epoch = trainer.cfg.optimization, trainer.get_num_updates(), batches.next_epoch_idx
    if limits.max_update and updates >= limits.max_update:
        return f"the checkpoint has {updates} updates, --max-update is {limits.max_update}"
    if limits.max_epoch and epoch > limits.max_epoch:
        return f"the next epoch is number {epoch}, --max-epoch is {limits.max_epoch}"
    hours = trainer._previous_training_time / 3600
    if 0 < limits.stop_time_hours < hours:
        return f"the checkpoint took {hours:.4g} hours, --stop-time-hours is {limits.stop_time_hours:g}"
    return None


@around("fairseq.trainer", "Trainer.lr_step")
def save_last_epochs(original: Callable, self: Any, epoch: int, *losses: Any) -> Any:
    """Save the last update of a training: with --save-interval 5 --max-epoch 9 fairseq loses the last four epochs.

    Only fairseq's loop over epochs passes a loss, which may be None.
    """
    from fairseq import checkpoint_utils

    rate = original(self, epoch, *losses)
    if losses:
        saving, updates, limits = self.cfg.checkpoint, self.get_num_updates(), self.cfg.optimization
        each = saving.save_interval_updates
        saved = epoch % saving.save_interval == 0 or (
            each > 0 and updates % each == 0 and updates >= self.cfg.dataset.validate_after_updates
        )
        last = self.batches.next_epoch_idx > (limits.max_epoch or math.inf) or rate <= limits.stop_min_lr
        if last and not saved:
            checkpoint_utils.save_checkpoint(saving, self, self.batches, losses[0])
    return rate
