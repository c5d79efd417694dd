"""End fairseq's processes and threads that load batches ahead when their batches are used or dropped."""

import contextlib
import multiprocessing
import queue
import re
import sys
import threading
import time
import warnings
import weakref
from typing import Any, Callable, Sequence

import torch

from fairseq_mega.compat.patching import around


def start_workers_by_fork() -> None:
    """Start worker processes by fork also on Python 3.14, whose default on Linux pickles the data set for each."""
    if sys.version_info >= (3, 14) and multiprocessing.get_start_method() == "forkserver":
        multiprocessing.set_start_method("fork", force=True)


@around("fairseq.data.iterators", "EpochBatchIterator._get_iterator_for_epoch")
def end_workers_with_their_batches(original: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    """End the workers of --num-workers after the last batch of an epoch, or when its batches are dropped.

    fairseq creates workers that outlive the epoch, for a DataLoader that is kept. If batches are drawn again in each
    epoch, every epoch has a new DataLoader, and the old one is in a reference cycle: the garbage collector closes the
    queues of the workers first, then waits 5 s for each worker to read its end from its queue.

    Without a GPU and --num-workers the main process loads the batches: fairseq's default of one worker competes with
    the training for the CPU, and batches in memory are ready in less than 1 ms.
    """
    workers = self.num_workers
    self.persistent_workers = self.reuse_dataloader = False
    if not workers_are_requested(sys.argv) and not torch.cuda.is_available():
        self.num_workers = 0
    try:
        with warnings.catch_warnings():  # fairseq requests pinned memory also without a GPU
            warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no accelerator")
            batches = original(self, *args, **kwargs)
    finally:
        self.num_workers = workers
    if hasattr(self, "epoch_batch_sampler"):  # read once, in the constructor; it would close a reference cycle
        self.epoch_batch_sampler.ordered_batches = None
    loader: Any = getattr(batches, "_itr", None)
    if hasattr(loader, "_shutdown_workers"):  # no BufferedIterator between; other cycles may hold the batches
        weakref.finalize(batches, loader._shutdown_workers)
    return batches


def workers_are_requested(arguments: Sequence[str]) -> bool:
    """Return whether a command line sets the number of workers, by --num-workers or hydra's dataset.num_workers."""
    return any(re.match(r"(--num-workers|\+*dataset\.num_workers)(=|$)", argument) for argument in arguments)


@around("fairseq.data.iterators", "BufferedIterator._create_consumer")
def end_background_loading_with_its_reader(original: Callable, self: Any) -> None:
    """End fairseq's thread that loads batches ahead when its reader is deleted, at the latest when Python shuts down.

    A training that reaches --max-update within an epoch, or a validation shortened by --max-valid-steps, leaves the
    thread and its workers waiting. If the shutdown finds the thread inside torch, Python unwinds it, and C++ aborts the
    process: "terminate called without an active exception", exit status -6 after a complete training.
    """
    original(self)
    weakref.finalize(self, end_background_loading, self._consumer)


def end_background_loading(thread: Any, seconds: float = 10.0) -> None:
    """Make a BackgroundConsumer finish the current batch and end; waits at most ``seconds``."""
    deadline = time.monotonic() + seconds
    thread._max_len = 0  # its loop ends after the current batch
    thread._queue.maxsize = sys.maxsize
    with contextlib.suppress(queue.Empty):
        thread._queue.get_nowait()  # wakes the thread if it waits for room in the queue
    if thread is not threading.current_thread():  # the garbage collector may run in any thread
        thread.join(max(0.0, deadline - time.monotonic()))
