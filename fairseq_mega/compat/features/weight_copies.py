"""Copies of the weights beside the model's: float32 weights of half-precision trainings, and averages."""

from typing import Any, Callable, Dict, List, Optional, Set

import torch

from fairseq_mega.compat.patching import around

Original = Callable[..., Any]
KEY = "master_weights"  # key in the state of the optimiser


def _masters(optimizer: Any) -> List[torch.Tensor]:
    weights = optimizer.fp32_params  # a dictionary by device if they are flat
    return list(weights.values() if isinstance(weights, dict) else weights)


@around("fairseq.optim.fp16_optimizer", "FP16Optimizer.state_dict")
def save_master_weights(original: Original, self: Any) -> Dict[str, Any]:
    """Save the float32 weights of --bf16 and --fp16 with the optimiser's state.

    fairseq saves only the model's weights: a continued training has lost all but their first 8 bits.
    """
    return {**original(self), KEY: [weight.detach() for weight in _masters(self)]}


@around("fairseq.optim.fp16_optimizer", "FP16Optimizer.load_state_dict")
def load_master_weights(original: Original, self: Any, state_dict: Dict[str, Any], *args: Any) -> None:
    """Continue from the saved float32 weights; the model's weights do not change."""
    rest = dict(state_dict)
    saved = rest.pop(KEY, None)
    original(self, rest, *args)
    if saved is not None:  # missing if fairseq saved the checkpoint without this package
        for weight, value in zip(_masters(self), saved):
            weight.data.copy_(value)


@around("fairseq.models.ema.ema", "EMA.__init__")
def copy_integers_into_the_average(
    original: Original,
    self: Any,
    model: torch.nn.Module,
    config: Any,
    device: Optional[torch.device] = None,
    skip_keys: Optional[Set[str]] = None,
) -> None:
    """Copy integer entries such as counters with --store-ema, instead of averaging them.

    fairseq multiplies every entry of the state dictionary by the decay, which fails for integers.
    """
    entries = model.state_dict().items()
    integers = {name for name, entry in entries if torch.is_tensor(entry) and not torch.is_floating_point(entry)}
    original(self, model, config, device, integers | set(skip_keys or ()))
