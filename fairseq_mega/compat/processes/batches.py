"""Repair fairseq's batches: keep every sample, and repeat the batches of an uninterrupted run after a resumption."""

import logging
import math
from typing import Any, Callable, Dict, Mapping

import numpy as np

from fairseq_mega.compat.patching import around

logger = logging.getLogger("fairseq_mega.compat.processes.batches")

BATCHES = "batches_in_epoch"  # key in an iterator's state: batches of each process
PROCESSES = "processes_of_epoch"  # key in an iterator's state: processes that share the batches
SEED = "seed_of_epoch"  # key in an iterator's state: with the epoch's number it determines the order of batches


@around("fairseq.data.data_utils", "batch_by_size")
def keep_last_batch(
    original,
    indices,
    num_tokens_fn,
    num_tokens_vec=None,
    max_tokens=None,
    max_sentences=None,
    required_batch_size_multiple=1,
    fixed_shapes=None,
):
    """Keep the samples of the last batch.

    fairseq drops the last batch if --required-batch-size-multiple (default 8) does not divide its size, in training,
    validation and generation (facebookresearch/fairseq#5036). The other batches do not change; the dropped samples
    follow in further batches within --max-tokens and --batch-size.
    """
    if not isinstance(indices, np.ndarray):
        indices = np.fromiter(indices, dtype=np.int64, count=-1)
    if num_tokens_vec is not None and not isinstance(num_tokens_vec, np.ndarray):
        num_tokens_vec = np.fromiter(num_tokens_vec, dtype=np.int64, count=-1)
    batches: list = []
    covered = 0
    # fairseq cuts batches from the front, so only the tail can be missing; a multiple of 1 keeps the tail.
    for multiple in (required_batch_size_multiple, 1):
        if covered < len(indices):
            vector = None if num_tokens_vec is None else num_tokens_vec[covered:]
            limits = (max_tokens, max_sentences, multiple, fixed_shapes)
            batches.extend(original(indices[covered:], num_tokens_fn, vector, *limits))
            covered = sum(map(len, batches))
    return batches


def redraw_batches_each_epoch() -> None:
    """Make a resumed run repeat the uninterrupted run exactly, in every epoch.

    By default fairseq draws the batches once, from seed + (first epoch), and keeps them. A run resumed in epoch 3
    therefore trains on other batches than an uninterrupted run. With this property False (fairseq's own switch;
    --update-epoch-batch-itr does the same for one run) both runs draw batches from seed + epoch.
    """
    from fairseq.data import FairseqDataset

    FairseqDataset.can_reuse_epoch_itr_across_epochs = property(lambda self: False)


@around("fairseq.data.iterators", "EpochBatchIterator.state_dict")
def save_number_and_seed(original: Callable, self: Any) -> Dict[str, Any]:
    """Save what :func:`load_at_the_same_place` reads."""
    return {**original(self), BATCHES: len(self), PROCESSES: self.num_shards, SEED: self.seed}


@around("fairseq.data.iterators", "EpochBatchIterator.load_state_dict")
def load_at_the_same_place(original: Callable, self: Any, state: Dict[str, Any]) -> Any:
    """Resume an epoch at the same position if it has another number of batches, as with another number of processes.

    fairseq skips as many batches as each process had read: with fewer processes it repeats a part of the epoch, with
    more processes it skips a part or ends with a traceback. Another seed is a warning.
    """
    place, now = state.get("iterations_in_epoch", 0), len(self)
    before = state.get(BATCHES, now)
    if place > 0 and before != now:
        moved = place * now // before
        processes = state.get(PROCESSES)  # None in a checkpoint of an earlier version
        if processes and math.ceil(len(self.frozen_batches) / processes) == before:  # the same batches, divided again
            moved = min(place * processes // self.num_shards, now)
        logger.warning(
            f"epoch {state['epoch']} has {now} batches for each process, and had {before} when the checkpoint was "
            f"written after batch {place}: training continues after batch {moved}"
        )
        state = {**state, "iterations_in_epoch": moved}
    seed = state.get(SEED, self.seed)
    if seed != self.seed:
        logger.warning(
            f"--seed changed ({seed}, now {self.seed}): batches and dropout differ from an uninterrupted training; "
            f"give --seed {seed}, or another --save-dir for a second training"
        )
    return original(self, state)


def is_for_training(options: Mapping[str, Any]) -> bool:
    """Return whether the keyword arguments of a task's `load_dataset` are those of a training split.

    Only fairseq's Trainer passes a `data_selector`, and only for --train-subset.
    """
    return "data_selector" in options
