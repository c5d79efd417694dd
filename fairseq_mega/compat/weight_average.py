"""The averaged model that --store-ema keeps."""

import typing

import torch

from .patching import wrap


def copy_integers_into_the_average() -> None:
    """Let --store-ema copy what is no floating-point number, such as counters, where fairseq would average it.

    fairseq multiplies every entry of the state dict by the decay, which torch refuses for integers.
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
