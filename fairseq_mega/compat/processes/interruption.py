"""Interrupted trainings: a first signal ends a training after its update, with a checkpoint; a second one at once."""

import contextlib
import copy
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
import types
import typing

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import globals_of_training, wrap, wrapped

logger = logging.getLogger("fairseq_mega.compat.processes.interruption")

MORE = "FAIRSEQ_MEGA_STOP_SIGNAL"  # environment variable
REPEATS = 0.5  # seconds: timeout, torchrun and terminals may send a signal to a process, and again to its group
_before: typing.Dict[int, typing.Any] = {}  # handlers that this module replaced
_received: typing.Optional[signal.Signals] = None  # by this process
_together: typing.Any = 0.0  # number of processes of this training that had received one in the last step
_training = _saved = _passed_on = False


def end_with_a_checkpoint() -> None:
    """End a training after its update when it is requested to stop: by SIGTERM, SIGINT, and the signal of the variable
    FAIRSEQ_MEGA_STOP_SIGNAL.

    The same command then continues as if the training had not been interrupted. The workers of a data loader leave
    signals to the main process.
    """
    from fairseq.trainer import Trainer
    from torch.utils.data._utils import signal_handling

    wrap(Trainer, "begin_epoch", _begin_to_train)
    wrap(Trainer, "_aggregate_logging_outputs", _share_what_was_received)
    wrap(Trainer, "valid_step", _save_before_the_rest)
    handlers = wrapped(signal_handling._set_worker_signal_handlers, _listen_to_the_main_process)
    signal_handling._set_worker_signal_handlers = handlers


def signals() -> typing.List[signal.Signals]:
    """Return the signals that end a training.

    Raises:
        ValueError: if the variable has another value than USR1 or USR2.
    """
    more = os.environ.get(MORE, "")
    if more not in ("", "USR1", "USR2"):
        raise ValueError(f"the environment variable {MORE} is {more!r}: set USR1 or USR2, or unset it")
    return [signal.SIGTERM, signal.SIGINT, *([signal.Signals[f"SIG{more}"]] if more else [])]


@contextlib.contextmanager
def listening() -> typing.Iterator[None]:
    """Handle signals within the block, if this is the main thread.

    Raises:
        SystemExit: at the end of the block, if processes that this one started have been requested to stop.
    """
    global _received, _together, _training, _saved, _passed_on
    _listen()
    try:
        yield
    finally:
        status = 128 + _received if _received is not None and _passed_on else 0
        for number, handler in _before.items():
            signal.signal(number, handler)
        _before.clear()
        _received, _together, _training, _saved, _passed_on = None, 0.0, False, False, False
        if status:
            raise SystemExit(status)


def _listen() -> None:
    if not _before and threading.current_thread() is threading.main_thread():
        _before.update((number, signal.signal(number, _handle)) for number in signals())


def _handle(number: int, frame: typing.Optional[types.FrameType]) -> None:
    """Note a signal, or pass it on to the processes of the training that this process started."""
    global _received, _passed_on
    started = [child for child in multiprocessing.active_children() if not child.daemon]
    if not (_training or started):
        signal.signal(number, _before.pop(number))
        signal.raise_signal(number)
        return
    for other in _before:
        signal.signal(other, signal.SIG_IGN)
    _received, _passed_on = signal.Signals(number), bool(started)
    for child in started:
        with contextlib.suppress(ProcessLookupError):
            os.kill(typing.cast(int, child.pid), number)
    if not started and (not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0):
        line = f"{_received.name}: the training ends after this update (a second signal ends it at once)\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())  # sys.stderr may be in the middle of a line
    time.sleep(REPEATS)
    for other in _before:
        signal.signal(other, signal.SIG_DFL)


def listen(call: hooks.Call) -> typing.Iterator[None]:
    """Handle signals while a command runs (event "run")."""
    with listening():
        yield


def _begin_to_train(original: typing.Callable, self: typing.Any, epoch: int) -> None:
    global _training
    namespace = globals_of_training()
    if namespace:
        namespace["validate_and_save"] = wrapped(namespace["validate_and_save"], _end_after_the_update)
        _listen()  # fairseq-hydra-train calls call_main before it imports this package
        _training = True
    original(self, epoch)


def _share_what_was_received(
    original: typing.Callable, self: typing.Any, outputs: typing.Any, *to_sum: typing.Any, ignore: bool = False
) -> typing.Any:
    """Tell all processes in the same step whether one of them has received a signal."""
    global _together
    outputs, (*summed, _together) = original(self, outputs, *to_sum, float(_received is not None), ignore=ignore)
    return outputs, summed


def _must_end(trainer: typing.Any) -> bool:
    return float(_together) > 0 if trainer.data_parallel_world_size > 1 else _received is not None


def _save(trainer: typing.Any) -> None:
    """Write checkpoint_last.pt alone, also with --no-last-checkpoints; the best score does not change."""
    from fairseq import checkpoint_utils

    saving = copy.copy(trainer.cfg.checkpoint)
    saving.no_last_checkpoints, saving.no_epoch_checkpoints, saving.save_interval_updates = False, True, 0
    checkpoint_utils.save_checkpoint(saving, trainer, trainer.batches, None)


def _save_before_the_rest(
    original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    """Save in a validation, which may take longer than the machine waits; the validation continues."""
    global _saved
    logged = original(self, *args, **kwargs)
    if _training and not _saved and _must_end(self):
        _save(self)
        _saved = True
    return logged


def _end_after_the_update(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, *args: typing.Any
) -> typing.Any:
    """Validate and save as fairseq does; then save and end the process if a stop is requested and updates are left."""
    losses, stop = original(cfg, trainer, *args)
    if stop or not _must_end(trainer):
        return losses, stop
    _save(trainer)
    number, saving = _received or signal.SIGTERM, cfg.checkpoint
    last = os.path.join(saving.save_dir, f"checkpoint_last{trainer.checkpoint_suffix}.pt")
    what = "nothing is saved (--no-save)" if saving.no_save else f"the same command continues from {last}"
    logger.info(f"{number.name}: the training ends after update {trainer.get_num_updates()}; {what}")
    if torch.distributed.is_initialized():
        torch.distributed.barrier()  # torchrun ends all processes with the first
    raise SystemExit(128 + number)


def _listen_to_the_main_process(original: typing.Callable) -> None:
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
