"""Workers that load batches ahead: fairseq's processes and threads end when their batches are used or dropped."""

import contextlib
import multiprocessing
import queue
import re
import sys
import threading
import time
import typing
import warnings
import weakref

import torch

from fairseq_mega.compat.patching import wrap

SHORT_EPOCH = 200  # batches; starting and ending a worker takes 20 to 100 ms


def start_workers_by_fork() -> None:
    """Start worker processes by fork with Python 3.14, too, whose default on Linux hands each the data set pickled."""
    if sys.version_info >= (3, 14) and multiprocessing.get_start_method() == "forkserver":
        multiprocessing.set_start_method("fork", force=True)


def end_workers_with_their_batches() -> None:
    """Make the workers of --num-workers end with the last batch of an epoch, or as soon as nobody wants its batches.

    fairseq creates workers that outlive the epoch, for a DataLoader that is kept. Where batches are drawn again in
    each epoch there is a new one each time, and the old one is part of a circle of references: the garbage collector
    closes the queues of the workers first, then waits 5 s for each worker to read its end from them.

    Unless --num-workers is given, the main process loads the batches where that is faster, see
    :func:`workers_are_of_use`.
    """
    from fairseq.data import iterators

    for kind in (iterators.EpochBatchIterator, iterators.GroupedEpochBatchIterator):
        wrap(kind, "_get_iterator_for_epoch", _batches_of_an_epoch)


def _batches_of_an_epoch(
    original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """The batches, whose workers end with the epoch."""
    workers = self.num_workers
    self.persistent_workers = self.reuse_dataloader = False
    if not workers_are_asked_for(sys.argv) and not workers_are_of_use(len(self)):
        self.num_workers = 0
    try:
        with warnings.catch_warnings():  # fairseq wants pinned memory on machines without a GPU, too
            warnings.filterwarnings("ignore", message="'pin_memory' argument is set as true but no accelerator")
            batches = original(self, *args, **kwargs)
    finally:
        self.num_workers = workers
    if hasattr(self, "epoch_batch_sampler"):  # read once, in its constructor; it would close the circle
        self.epoch_batch_sampler.ordered_batches = None
    loader: typing.Any = getattr(batches, "_itr", None)
    if hasattr(loader, "_shutdown_workers"):  # no BufferedIterator between; other circles may hold the batches
        weakref.finalize(batches, loader._shutdown_workers)
    return batches


def workers_are_of_use(batches: int) -> bool:
    """Return whether an epoch of so many batches is worth fairseq's default, one worker.

    A thread loads ahead in any case (--data-buffer-size), and batches that lie in memory are ready in less than 1 ms. A
    worker takes longer to hand one over, and on a CPU its time is the training's: 200 batches of a toy translator took
    4.0 s with a worker and 3.1 s without.
    """
    return batches >= SHORT_EPOCH and torch.cuda.is_available()


def workers_are_asked_for(arguments: typing.Sequence[str]) -> bool:
    """Return whether a command line sets the number of workers, by --num-workers or hydra's dataset.num_workers."""
    return any(re.match(r"(--num-workers|\+*dataset\.num_workers)(=|$)", argument) for argument in arguments)


def end_background_loading_with_its_reader() -> None:
    """End the thread in which fairseq loads batches ahead when its reader goes, at the latest as Python shuts down.

    A training that reaches --max-update in mid-epoch, or a validation cut short by --max-valid-steps, leaves such a
    thread waiting, and with it its workers. Where the shutdown finds it inside torch, Python unwinds it, and C++ aborts
    the process: "terminate called without an active exception", exit status -6 after a complete training (seen once in
    some hundred runs, on a busy machine).
    """
    from fairseq.data.iterators import BufferedIterator

    wrap(BufferedIterator, "_create_consumer", _create_finalized)


def _create_finalized(original: typing.Callable, self: typing.Any) -> None:
    original(self)
    weakref.finalize(self, end_background_loading, self._consumer)


def end_background_loading(thread: typing.Any, seconds: float = 10.0) -> None:
    """Make a BackgroundConsumer finish the batch at hand and end; waits at most ``seconds``."""
    deadline = time.monotonic() + seconds
    thread._max_len = 0  # its loop ends after the batch at hand
    thread._queue.maxsize = sys.maxsize
    with contextlib.suppress(queue.Empty):
        thread._queue.get_nowait()  # wakes it where it waits for room in the queue
    if thread is not threading.current_thread():  # where the garbage collector runs is not ours to choose
        thread.join(max(0.0, deadline - time.monotonic()))
