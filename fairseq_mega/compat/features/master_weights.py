"""Save the float32 weights of a training with --bf16 or --fp16, whose model has rounded weights."""

import typing

import torch

from fairseq_mega.compat.patching import wrap

KEY = "master_weights"  # key in the state of the optimiser


def keep_master_weights() -> None:
    """Save the float32 weights with the optimiser's state, and continue from them; the model's weights do not change.

    fairseq saves only the model's weights: a continued training has lost all but their first 8 bits.
    """
    from fairseq.optim import FP16Optimizer

    wrap(FP16Optimizer, "state_dict", _save_masters)
    wrap(FP16Optimizer, "load_state_dict", _load_masters)


def _masters(optimizer: typing.Any) -> typing.List[torch.Tensor]:
    weights = optimizer.fp32_params  # a dictionary by device if they are flat
    return list(weights.values() if isinstance(weights, dict) else weights)


def _save_masters(original: typing.Callable, self: typing.Any) -> typing.Dict[str, typing.Any]:
    return {**original(self), KEY: [weight.detach() for weight in _masters(self)]}


def _load_masters(
    original: typing.Callable, self: typing.Any, state_dict: typing.Dict[str, typing.Any], *args: typing.Any
) -> None:
    rest = dict(state_dict)
    saved = rest.pop(KEY, None)
    original(self, rest, *args)
    if saved is not None:  # missing if fairseq saved the checkpoint without this package
        for weight, value in zip(_masters(self), saved):
            weight.data.copy_(value)
