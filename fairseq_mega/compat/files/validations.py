"""Record of validations in a checkpoint: the best score, its data, and the number of validations since."""

import argparse
import hashlib
import logging
import os
import typing

import numpy as np
import torch

from fairseq_mega.compat.patching import globals_of_training, wrap

logger = logging.getLogger("fairseq_mega.compat.files.validations")

KEY = "validations"  # in the extra_state of a checkpoint
SAMPLES = 32  # of a validation set, read for its digest
OF_NO_SCORE = ("report_accuracy", "eval_bleu_print_samples")  # options of criterions and of BLEU
OF_THE_LOSS_ALONE = ("label_smoothing", "sentence_avg")  # and not of nll_loss and ppl
OF_THE_PART = ("max_tokens_valid", "batch_size_valid")  # that --max-valid-steps batches make


def remember_validations() -> None:
    """Continue the count of --patience from the checkpoint, and forget a best score of other validation data.

    fairseq keeps the count in the process alone, and compares with the best loss on the data of the checkpoint: with
    --restore-file on other data checkpoint_best.pt is never written.
    """
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap(checkpoint_utils, "load_checkpoint", _load_with_validations)
    wrap(Trainer, "save_checkpoint", _save_with_validations)


def is_reset(cfg: typing.Any, restored: str) -> bool:
    """Return whether a training begins anew with only the weights of a checkpoint.

    Args:
        cfg: a CheckpointConfig.
        restored: path of the checkpoint.
    """
    return bool(cfg.reset_optimizer or cfg.reset_meters or restored == cfg.finetune_from_model)


def restored_file(cfg: typing.Any, suffix: str) -> str:
    """Return the path of the checkpoint that a training begins with, "" if there is none yet."""
    if cfg.restore_file != "checkpoint_last.pt":
        return str(cfg.restore_file).replace(".pt", f"{suffix}.pt")
    last = os.path.join(cfg.save_dir, f"checkpoint_last{suffix}.pt")
    first = getattr(cfg, "continue_once", None) or cfg.finetune_from_model
    return last if os.path.exists(last) else str(first or "")


def _load_with_validations(
    original: typing.Callable, cfg: typing.Any, trainer: typing.Any, **options: typing.Any
) -> typing.Any:
    from fairseq import checkpoint_utils

    save, stop = checkpoint_utils.save_checkpoint, globals_of_training().get("should_stop_early")
    for function, name in ((save, "best"), (stop, "best"), (stop, "num_runs")):  # of an earlier training
        if hasattr(function, name):
            delattr(function, name)
    suffix = trainer.checkpoint_suffix
    restored = restored_file(cfg, suffix)
    if cfg.finetune_from_model and restored != cfg.finetune_from_model:
        logger.warning(
            f"--finetune-from-model {cfg.finetune_from_model} is not read: the training continues from {restored}; "
            "give another --save-dir to begin with the weights of --finetune-from-model"
        )
    loaded = original(cfg, trainer, **options)
    subset = trainer.cfg.dataset.valid_subset.split(",")[0]
    now = {
        "metric": cfg.best_checkpoint_metric,
        "maximize": bool(cfg.maximize_best_checkpoint_metric),
        "subset": subset,
        "data": digest(trainer.task.datasets.get(subset)),
        "score": options_of_score(trainer.cfg),
    }
    trainer.validations, trainer.stop_early, trainer.other_data = now, stop, False
    extra_state = loaded[0]
    if extra_state is None:
        return loaded
    if is_reset(cfg, restored):
        trainer._previous_training_time = 0  # of the other training
    if not hasattr(save, "best"):  # no best score yet, or one to forget
        return loaded
    before = extra_state.get(KEY, now)
    other = [name for name in now if None not in (before.get(name), now[name]) and before[name] != now[name]]
    trainer.other_data = "data" in other and "subset" not in other
    if other:
        reason = "another metric or other validation data"
        if other == ["score"]:
            reason = f"another kind ({before['score']}, now {now['score']})"
        logger.info(f"the best score in {restored} is of {reason}: it begins anew")
        del save.best
        _forget_best_of_plateau(trainer.lr_scheduler)
        return loaded
    if stop is not None:
        stop.best, stop.num_runs = before.get("patience_best", save.best), before.get("runs_without", 0)
    if not cfg.no_save and not os.path.exists(os.path.join(cfg.save_dir, f"checkpoint_best{suffix}.pt")):
        logger.info(f"{cfg.save_dir} has no checkpoint_best{suffix}.pt: the next validation makes one")
        del save.best
    return loaded


def _forget_best_of_plateau(schedule: typing.Any) -> None:
    """Forget the best score that --lr-scheduler reduce_lr_on_plateau keeps."""
    of_torch = getattr(schedule, "lr_scheduler", None)
    if isinstance(of_torch, torch.optim.lr_scheduler.ReduceLROnPlateau):
        of_torch._reset()


def options_of_score(cfg: typing.Any) -> str:
    """Return the options that define the best score; scores with different options are not comparable.

    Args:
        cfg: all options of a training.
    """
    metric, given = cfg.checkpoint.best_checkpoint_metric, {}
    if metric == "bleu":
        given = {name: value for name, value in _options(cfg.task).items() if name.startswith("eval_")}
    elif not cfg.checkpoint.maximize_best_checkpoint_metric:  # a loss; an accuracy is the same with each criterion
        given = _options(cfg.criterion)
        if metric != "loss":
            given = {name: value for name, value in given.items() if name not in OF_THE_LOSS_ALONE}
    if cfg.dataset.max_valid_steps is not None:
        given["max_valid_steps"] = cfg.dataset.max_valid_steps
        given.update((name, getattr(cfg.dataset, name)) for name in OF_THE_PART)
    words = (f"--{name.replace('_', '-')} {value}" for name, value in sorted(given.items()) if name not in OF_NO_SCORE)
    return " ".join(words)


def _options(group: typing.Any) -> typing.Dict[str, typing.Any]:
    """Return the options of a group; none for a group that fairseq keeps together with all other options."""
    found = {} if isinstance(group, argparse.Namespace) else dict(group)
    return {name: value for name, value in found.items() if name != "_name"}


def _save_with_validations(
    original: typing.Callable, self: typing.Any, filename: str, extra_state: typing.Dict[str, typing.Any]
) -> typing.Any:
    about = getattr(self, "validations", None)
    if about is not None:
        stop = self.stop_early
        if hasattr(stop, "best"):
            about = {**about, "patience_best": float(stop.best), "runs_without": int(getattr(stop, "num_runs", 0))}
        extra_state = {**extra_state, KEY: about}
    return original(self, filename, extra_state)


def digest(dataset: typing.Any) -> typing.Optional[str]:
    """Return a digest of the number, the sizes and some of the samples of a data set; None for one without places."""
    from fairseq.data import data_utils

    if not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        return None
    found = hashlib.sha256(str(len(dataset)).encode())
    if hasattr(dataset, "set_epoch"):
        dataset.set_epoch(1)  # as in validation: random choices of each epoch are repeated
    _add(found, getattr(dataset, "sizes", None))
    with torch.random.fork_rng(devices=[]), data_utils.numpy_seed(1):
        torch.manual_seed(1)
        try:
            for place in np.unique(np.linspace(0, len(dataset) - 1, SAMPLES).astype(int)) if len(dataset) else ():
                _add(found, dataset[int(place)])
        except AssertionError:  # of a data set of several languages, which has no places before it has batches
            return None
    return found.hexdigest()[:32]


def _add(found: typing.Any, value: typing.Any) -> None:
    """Add a value to a digest: tensors, arrays, and containers of them."""
    if isinstance(value, dict):
        value = [part for item in sorted(value.items(), key=lambda item: str(item[0])) for part in item]
    if isinstance(value, (list, tuple)):
        for part in value:
            _add(found, part)
    elif isinstance(value, (torch.Tensor, np.ndarray)):
        if isinstance(value, torch.Tensor) and value.dtype is torch.bfloat16:  # which numpy lacks
            value = value.float()
        array = np.asarray(value)
        found.update(str(array.shape).encode() + array.tobytes())
    elif isinstance(value, (str, int, float, bool)):
        found.update(repr(value).encode())
