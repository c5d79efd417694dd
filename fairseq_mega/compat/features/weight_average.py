"""Repair the averaged model of --store-ema."""

import typing

import torch

from fairseq_mega.compat.patching import wrap


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
