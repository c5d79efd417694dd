"""The one place that knows about quirks of fairseq, torch and numpy versions; `apply` mends them all.

Every mend is idempotent and silent and changes nothing where the installed version does not need it. The
mends reach each fairseq command: those import the plugin before they parse arguments or load a checkpoint.
"""

import argparse
import atexit
import collections
import contextlib
import functools
import logging
import os
import queue
import shutil
import sys
import threading
import time
import types
import typing
import weakref

import numpy as np
import torch

CLI_LOG_FORMAT = "%(asctime)s | %(levelname)s | %(name)s | %(message)s"
CLI_DATE_FORMAT = "%Y-%m-%d %H:%M:%S"


def apply() -> None:
    """Apply every mend; a second call does nothing.

    Raises ImportError where the installed fairseq cannot run on this Python.
    """
    import_fairseq()
    undo_leaked_logging()
    allow_safe_globals()
    restore_removed_numpy_names()
    keep_last_batch()
    redraw_batches_each_epoch()
    copy_checkpoints_atomically()
    end_background_loading_at_exit()
    separate_bf16_from_tpu()


def import_fairseq() -> None:
    """Import fairseq without its import-time messages and the root handler that one of its models adds."""
    if "fairseq" in sys.modules:
        return
    root = logging.getLogger()
    handlers, level, disabled = list(root.handlers), root.level, root.manager.disable
    logging.disable(max(disabled, logging.INFO))
    try:
        import fairseq  # noqa: F401
    except ValueError as error:
        if "mutable default" not in str(error):
            raise
        raise ImportError(
            f"the installed fairseq cannot be imported by Python {sys.version_info[0]}.{sys.version_info[1]} "
            f"({error}): uninstall it and install fairseq-fixed, the one repaired for Python 3.11 and later"
        ) from error
    finally:
        logging.disable(disabled)
    added = [handler for handler in root.handlers if handler not in handlers]
    for handler in added:
        root.removeHandler(handler)
    if added:
        root.setLevel(level)


def undo_leaked_logging() -> None:
    """Give fairseq-generate, -interactive and -eval-lm back the log format and stream that they ask for.

    These commands import fairseq first, whose wav2vec2_classification calls logging.basicConfig(level=DEBUG);
    the commands' own basicConfig is then ignored, and their results ("Loss (base 2): ...") go to stderr.
    """
    root = logging.getLogger()
    late = {"fairseq_cli.interactive", "fairseq_cli.eval_lm"} & set(sys.modules)
    if not late and "fairseq_cli.generate" not in sys.modules:
        return
    if len(root.handlers) != 1 or root.level != logging.DEBUG:
        return
    (handler,) = root.handlers
    template = getattr(handler.formatter, "_fmt", None)
    if type(handler) is not logging.StreamHandler or template != logging.BASIC_FORMAT:
        return
    root.removeHandler(handler)
    root.setLevel(logging.WARNING)
    if late:  # fairseq-generate configures logging after this, once it knows its output file
        level = os.environ.get("LOGLEVEL", "INFO").upper()
        logging.basicConfig(format=CLI_LOG_FORMAT, datefmt=CLI_DATE_FORMAT, level=level, stream=sys.stdout)


def safe_globals() -> list:
    """List what fairseq's own checkpoints and broadcasts contain beyond tensors and plain containers."""
    import omegaconf
    from fairseq.distributed import utils as distributed_utils
    from omegaconf import base, nodes

    multiarray: typing.Any = getattr(np, "_core", None) or np.core
    multiarray = multiarray.multiarray
    found: list = [argparse.Namespace, collections.defaultdict, typing.Any, dict, list, int]
    found += [np.ndarray, np.dtype]
    # A pickle names the module that numpy had when it was written: both spellings may occur.
    found += [
        (getattr(multiarray, function), f"numpy.{core}.multiarray.{function}")
        for function in ("scalar", "_reconstruct")
        for core in ("core", "_core")
    ]
    found += [type(np.dtype(code)) for code in "?bhilqBHILQefdSU"]
    found += [omegaconf.DictConfig, omegaconf.ListConfig]
    found += [getattr(base, name) for name in ("Metadata", "ContainerMetadata") if hasattr(base, name)]
    found += [v for v in vars(nodes).values() if isinstance(v, type) and v.__module__ == nodes.__name__]
    if hasattr(distributed_utils, "_TensorPlaceholder"):
        found.append(distributed_utils._TensorPlaceholder)
    return found


def allow_safe_globals() -> None:
    """Let torch.load read fairseq's checkpoints: torch >= 2.6 refuses every class that is not listed."""
    if not hasattr(torch.serialization, "add_safe_globals"):
        return  # torch before 2.4 has no such list and loads everything
    pairs_known = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 6)
    entries = [entry for entry in safe_globals() if pairs_known or isinstance(entry, type)]
    torch.serialization.add_safe_globals(entries)


class _NumpyWithRemovedNames(types.ModuleType):
    """numpy as fairseq's data modules know it: with np.compat.long and percentile(interpolation=)."""

    compat = types.SimpleNamespace(long=np.int64)

    @staticmethod
    def percentile(*args: typing.Any, interpolation: typing.Optional[str] = None, **kwargs: typing.Any) -> typing.Any:
        """Pass `interpolation` on under its present name, `method`."""
        if interpolation is not None:
            kwargs["method"] = interpolation
        return np.percentile(*args, **kwargs)

    def __getattr__(self, name: str) -> typing.Any:
        return getattr(np, name)


def restore_removed_numpy_names() -> None:
    """Give three fairseq modules what NumPy 2 removed; numpy itself stays as it is.

    Needed by --sample-break-mode eos and --num-batch-buckets.
    """
    if hasattr(np, "compat"):
        return
    from fairseq.data import data_utils, language_pair_dataset, token_block_dataset

    for module in (data_utils, language_pair_dataset, token_block_dataset):
        if not isinstance(module.np, _NumpyWithRemovedNames):
            module.np = _NumpyWithRemovedNames("numpy")


def _replace_in_fairseq(name: str, original: typing.Callable, replacement: typing.Callable) -> None:
    """Put `replacement` wherever a loaded fairseq module holds `original`, imported by name or not."""
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] in ("fairseq", "fairseq_cli") and vars(module).get(name) is original:
            setattr(module, name, replacement)


def keep_last_batch() -> None:
    """Keep the samples of the last batch.

    fairseq drops that batch when --required-batch-size-multiple (default 8) does not divide its size, in
    training, validation and generation (facebookresearch/fairseq#5036). The other batches stay as they
    are; what was left out follows in further batches within --max-tokens and --batch-size.
    """
    from fairseq.data import data_utils

    original = data_utils.batch_by_size
    if hasattr(original, "keeps_last_batch"):
        return

    @functools.wraps(original)
    def batch_by_size(
        indices,
        num_tokens_fn,
        num_tokens_vec=None,
        max_tokens=None,
        max_sentences=None,
        required_batch_size_multiple=1,
        fixed_shapes=None,
    ):
        if not isinstance(indices, np.ndarray):
            indices = np.fromiter(indices, dtype=np.int64, count=-1)
        if num_tokens_vec is not None and not isinstance(num_tokens_vec, np.ndarray):
            num_tokens_vec = np.fromiter(num_tokens_vec, dtype=np.int64, count=-1)
        batches: list = []
        covered = 0
        # fairseq cuts batches from the front, so only a tail can be missing; a multiple of 1 keeps all of it.
        for multiple in (required_batch_size_multiple, 1):
            if covered < len(indices):
                vector = None if num_tokens_vec is None else num_tokens_vec[covered:]
                limits = (max_tokens, max_sentences, multiple, fixed_shapes)
                batches.extend(original(indices[covered:], num_tokens_fn, vector, *limits))
                covered = sum(map(len, batches))
        return batches

    batch_by_size.keeps_last_batch = True  # type: ignore[attr-defined]
    _replace_in_fairseq("batch_by_size", original, batch_by_size)


def redraw_batches_each_epoch() -> None:
    """Make a resumed run repeat the uninterrupted one exactly, in every epoch.

    By default fairseq draws the batches once, from seed + (epoch of the start), and keeps them. A run resumed
    in epoch 3 therefore trains on other batches than the run that went through. With this property False
    (fairseq's own switch; --update-epoch-batch-itr does the same for one run) both draw from seed + epoch.
    """
    from fairseq.data import FairseqDataset

    FairseqDataset.can_reuse_epoch_itr_across_epochs = property(lambda self: False)


def copy_checkpoints_atomically() -> None:
    """Make checkpoint_best.pt and checkpoint_last.pt appear complete or not at all.

    fairseq writes the first file of a save under a temporary name but then copies it in place, so that a
    process killed during the copy leaves a truncated checkpoint_last.pt, from which nothing can be resumed.
    """
    from fairseq.file_io import PathManager

    original = PathManager.copy
    if hasattr(original, "is_atomic"):
        return

    @functools.wraps(original)
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        if any(map(PathManager.path_requires_pathmanager, (src_path, dst_path))):
            return original(src_path, dst_path, overwrite)
        if not overwrite and os.path.exists(dst_path):
            return original(src_path, dst_path, overwrite)
        temporary = f"{dst_path}.tmp"
        shutil.copyfile(src_path, temporary)
        os.replace(temporary, dst_path)
        return True

    copy.is_atomic = True  # type: ignore[attr-defined]
    PathManager.copy = staticmethod(copy)


def end_background_loading_at_exit() -> None:
    """End the threads in which fairseq loads batches ahead before the interpreter shuts down.

    A training that reaches --max-update in mid-epoch leaves such a thread at work. Where the shutdown finds it inside
    torch, Python unwinds it, and C++ aborts the process: "terminate called without an active exception", exit status
    -6 after a complete training (seen once in some hundred runs, on a busy machine).
    """
    from fairseq.data.iterators import BackgroundConsumer

    original = BackgroundConsumer.run
    if hasattr(original, "ends_at_exit"):
        return
    running: weakref.WeakSet[threading.Thread] = weakref.WeakSet()

    @functools.wraps(original)
    def run(self: typing.Any) -> None:
        running.add(self)
        original(self)

    run.ends_at_exit = True  # type: ignore[attr-defined]
    BackgroundConsumer.run = run
    atexit.register(end_background_loading, running)


def end_background_loading(threads: typing.Iterable[typing.Any], seconds: float = 10.0) -> None:
    """Let each BackgroundConsumer finish the batch at hand and end; waits at most ``seconds`` in all."""
    deadline = time.monotonic() + seconds
    for thread in list(threads):
        thread._max_len = 0  # its loop ends after the batch at hand
        while thread.is_alive() and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                thread._queue.get_nowait()  # a full queue would hold it
            thread.join(0.01)


def separate_bf16_from_tpu() -> None:
    """Make --bf16 and --memory-efficient-bf16 run on CPU and GPU: fairseq's parser turns them into --tpu."""
    from fairseq import options

    original = options.parse_args_and_arch
    if hasattr(original, "separates_bf16"):
        return

    @functools.wraps(original)
    def parse_args_and_arch(parser, input_args=None, parse_known=False, *args, **kwargs):
        parsed = original(parser, input_args, parse_known, *args, **kwargs)
        namespace = parsed[0] if parse_known else parsed
        if getattr(namespace, "bf16", False):
            given = sys.argv[1:] if input_args is None else input_args
            namespace.tpu = "--tpu" in given
        return parsed

    parse_args_and_arch.separates_bf16 = True  # type: ignore[attr-defined]
    _replace_in_fairseq("parse_args_and_arch", original, parse_args_and_arch)
