"""Interrupted trainings: a first signal ends a training after its update, with a checkpoint; a second one at once."""

import contextlib
import copy
import functools
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
from typing import Any, Callable, Dict, Iterator, List, Optional, cast

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

logger = logging.getLogger("fairseq_mega.compat.processes.interruption")

MORE = "FAIRSEQ_MEGA_STOP_SIGNAL"  # environment variable
REPEATS = 0.5  # seconds: timeout, torchrun and terminals may send a signal to a process, and again to its group


class Stop:
    """Requests to stop: of this process, and of all processes of its training."""

    def __init__(self) -> None:
        self.handlers: Dict[int, Any] = {}  # that this module replaced, by their signals
        self.received: Optional[signal.Signals] = None  # by this process
        self.processes: Any = 0.0  # that had received one in the last step
        self.trains = self.has_saved = self.is_passed_on = False


stop = Stop()


def signals() -> List[signal.Signals]:
    """Return the signals that end a training; raise KeyError if the variable MORE names none."""
    more = os.environ.get(MORE)
    return [signal.SIGTERM, signal.SIGINT, *([signal.Signals[f"SIG{more}"]] if more else [])]


@contextlib.contextmanager
def listening() -> Iterator[None]:
    """Handle signals within the block, if this is the main thread: the training ends after its update.

    The signals are SIGTERM, SIGINT, and that of the variable FAIRSEQ_MEGA_STOP_SIGNAL. The same command then continues
    as if the training had not been interrupted.

    Raises:
        SystemExit: at the end of the block, if processes that this one started have been requested to stop.
    """
    global stop
    _listen()
    try:
        yield
    finally:
        received, is_passed_on = stop.received, stop.is_passed_on
        for number, handler in stop.handlers.items():
            signal.signal(number, handler)
        stop = Stop()  # for the next training of this process
        if received is not None and is_passed_on:
            raise SystemExit(128 + received)


def _listen() -> None:
    if not stop.handlers and threading.current_thread() is threading.main_thread():
        stop.handlers.update((number, signal.signal(number, _handle)) for number in signals())


def _handle(number: int, frame: Optional[types.FrameType]) -> None:
    """Note a signal, or pass it on to the processes of the training that this process started."""
    started = [child for child in multiprocessing.active_children() if not child.daemon]
    if not (stop.trains or started):
        signal.signal(number, stop.handlers.pop(number))
        signal.raise_signal(number)
        return
    for other in stop.handlers:
        signal.signal(other, signal.SIG_IGN)
    stop.received, stop.is_passed_on = signal.Signals(number), bool(started)
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(cast(int, child.pid), number)
    if not started and (not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0):
        line = f"{stop.received.name}: the training ends after this update (a second signal ends it at once)\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())  # sys.stderr may be in the middle of a line
    time.sleep(REPEATS)
    for other in stop.handlers:
        signal.signal(other, signal.SIG_DFL)


def listen(call: hooks.Call) -> Iterator[None]:
    """Handle signals while a command runs (event "run")."""
    with listening():
        yield


@around("fairseq.trainer", "Trainer.begin_epoch")
def begin_to_train(original: Callable, self: Any, epoch: int) -> None:
    """Handle signals from the first update on."""
    for name in ("fairseq_cli.train", "__main__"):  # the second one with ``python -m fairseq_cli.train``
        program: Any = sys.modules.get(name)
        validate = getattr(program, "validate_and_save", None)
        if validate is not None and not isinstance(validate, functools.partial):
            program.validate_and_save = functools.partial(_end_after_the_update, validate)
    _listen()  # fairseq-hydra-train calls call_main before it imports this package
    stop.trains = True
    original(self, epoch)


@around("fairseq.trainer", "Trainer._aggregate_logging_outputs")
def share_what_was_received(original: Callable, self: Any, outputs: Any, *to_sum: Any, ignore: bool = False) -> Any:
    """Tell all processes in the same step whether one of them has received a signal."""
    received = float(stop.received is not None)
    outputs, (*summed, stop.processes) = original(self, outputs, *to_sum, received, ignore=ignore)
    return outputs, summed


def _must_end(trainer: Any) -> bool:
    return float(stop.processes) > 0 if trainer.data_parallel_world_size > 1 else stop.received is not None


def _save(trainer: Any) -> None:
    """Write checkpoint_last.pt alone, also with --no-last-checkpoints; the best score does not change."""
    from fairseq import checkpoint_utils

    saving = copy.copy(trainer.cfg.checkpoint)
    saving.no_last_checkpoints, saving.no_epoch_checkpoints, saving.save_interval_updates = False, True, 0
    checkpoint_utils.save_checkpoint(saving, trainer, trainer.batches, None)


@around("fairseq.trainer", "Trainer.valid_step")
def save_before_the_rest(original: Callable, self: Any, *args: Any, **kwargs: Any) -> Any:
    """Save in a validation, which may take longer than the machine waits; the validation continues."""
    logged = original(self, *args, **kwargs)
    if stop.trains and not stop.has_saved and _must_end(self):
        _save(self)
        stop.has_saved = True
    return logged


def _end_after_the_update(original: Callable, cfg: Any, trainer: Any, *args: Any) -> Any:
    """Validate and save as fairseq does; then save and end the process if a stop is requested and updates are left."""
    losses, is_finished = original(cfg, trainer, *args)
    if is_finished or not _must_end(trainer):
        return losses, is_finished
    _save(trainer)
    number, saving = stop.received or signal.SIGTERM, cfg.checkpoint
    last = os.path.join(saving.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    what = "nothing is saved (--no-save)" if saving.no_save else f"the same command continues from {last}"
    logger.info(f"{number.name}: the training ends after update {trainer.get_num_updates()}; {what}")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # torchrun ends all processes with the first
    raise SystemExit(128 + number)


@around("torch.utils.data._utils.signal_handling", "_set_worker_signal_handlers")
def listen_to_the_main_process(original: Callable) -> None:
    """Make a worker ignore signals but the SIGTERM of the main process, which requires its batches until it ends."""
    original()
    if not sys.platform.startswith("linux"):
        return
    for number in signals():
        if number != signal.SIGTERM:
            signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    threading.Thread(target=_end_with_the_main_process, daemon=True).start()


def _end_with_the_main_process() -> None:
    while signal.sigwaitinfo([signal.SIGTERM]).si_pid != os.getppid():
        pass
    os._exit(0)
