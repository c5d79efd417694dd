"""Repair the averaged model of --store-ema."""

import contextvars
import logging
import typing

import torch

from fairseq_mega.compat.patching import wrap

logger = logging.getLogger("fairseq_mega.compat.features.weight_average")
_wanted: "contextvars.ContextVar[bool]" = contextvars.ContextVar("wanted", default=False)


def copy_integers_into_the_average() -> None:
    """Copy integer entries such as counters with --store-ema, instead of averaging them.

    fairseq multiplies every entry of the state dictionary by the decay, which fails for integers.
    """
    from fairseq.models.ema import EMA

    wrap(EMA, "__init__", _skip_integers)


def _skip_integers(
    original: typing.Callable,
    self: typing.Any,
    model: torch.nn.Module,
    config: typing.Any,
    device: typing.Optional[torch.device] = None,
    skip_keys: typing.Optional[typing.Set[str]] = None,
) -> None:
    entries = model.state_dict().items()
    integers = {name for name, entry in entries if torch.is_tensor(entry) and not torch.is_floating_point(entry)}
    original(self, model, config, device, integers | set(skip_keys or ()))


def begin_with_the_weights() -> None:
    """Begin --store-ema with the weights of a checkpoint without an average, for which fairseq raises a KeyError."""
    from fairseq import checkpoint_utils
    from fairseq.trainer import Trainer

    wrap(Trainer, "load_checkpoint", _load_with_average)
    wrap(checkpoint_utils, "load_checkpoint_to_cpu", _add_average)


def _load_with_average(
    original: typing.Callable, self: typing.Any, *args: typing.Any, **kwargs: typing.Any
) -> typing.Any:
    if self.cfg.ema.store_ema:
        logger.info(
            "--store-ema keeps an average of the weights in each checkpoint; other commands read the weights. "
            "average_checkpoints --ema FILE --output NEW makes a checkpoint of the average"
        )
    token = _wanted.set(bool(self.cfg.ema.store_ema))
    try:
        return original(self, *args, **kwargs)
    finally:
        _wanted.reset(token)


def _add_average(original: typing.Callable, path: typing.Any, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    checkpoint = original(path, *args, **kwargs)
    state = checkpoint.get("extra_state")
    if _wanted.get() and isinstance(state, dict) and "ema" not in state:
        logger.info(f"{path} has no average of its weights: --store-ema begins with the weights")
        checkpoint["extra_state"] = {**state, "ema": dict(checkpoint["model"])}
    return checkpoint
