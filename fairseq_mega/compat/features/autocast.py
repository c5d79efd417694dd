"""Mixed precision in bfloat16: float32 weights, gradients and optimiser, and the loss computed under autocast.

fairseq's --amp means float16 on a GPU, with a scaler of gradients, and has no effect on a CPU. bfloat16 has float32's
range and requires no scaler: the trainer trains as in float32, and only the criterion's call differs.
"""

import copy
import functools
import typing

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around


def is_requested(common: typing.Any, device: str) -> bool:
    """Return whether a configuration requires autocast to bfloat16: --amp with --bf16, and on a CPU --amp alone."""
    return bool(common.amp and (common.bf16 or device == "cpu"))


def device_of(common: typing.Any) -> str:
    """Return the type of device of a configuration."""
    return "cuda" if torch.cuda.is_available() and not common.cpu else "cpu"


def train_under_autocast(call: hooks.Call) -> typing.Iterator[None]:
    """Make --amp train in bfloat16 on the CPU, and with --bf16 on every device (event "build")."""
    trainer, common = call.arguments["self"], call.arguments["cfg"].common
    device = device_of(common)
    trainer.under_autocast = is_requested(common, device)
    if trainer.under_autocast:
        plain = copy.deepcopy(call.arguments["cfg"])
        plain.common.amp = plain.common.bf16 = False  # the trainer itself works in float32
        call.arguments["cfg"] = plain
    yield
    if trainer.under_autocast:
        criterion = trainer.get_criterion()
        criterion.forward = functools.partial(under_autocast, criterion.forward, device)


def under_autocast(function: typing.Callable, device: str, *args: typing.Any, **kwargs: typing.Any) -> typing.Any:
    """Call a function with products in bfloat16."""
    with torch.autocast(device, torch.bfloat16):
        return function(*args, **kwargs)


def record_precision(call: hooks.Call) -> typing.Iterator[None]:
    """Record the flags of the precision in checkpoints of trainings under autocast (event "state")."""
    yield
    if call.arguments["self"].under_autocast:
        call.result["cfg"]["common"].update(amp=True, bf16=True)


def evaluate_under_autocast(call: hooks.Call) -> typing.Iterator[None]:
    """Give the flags of an --amp training the same meaning in commands that read --path (event "run").

    These commands of fairseq support only --fp16.
    """
    cfg = call.arguments["cfg"]
    device = device_of(cfg.common)
    if is_requested(cfg.common, device) and cfg.common_eval.path is not None:
        call.arguments["main"] = functools.partial(under_autocast, call.arguments["main"], device)
    yield


def remember_autocast(call: hooks.Call) -> typing.Iterator[None]:
    """Store the precision of fairseq-generate, which has no event "run", in its models (event "infer")."""
    common = getattr(call.arguments["cfg"], "common", None)  # other code may pass the options of a command
    device = None if common is None else device_of(common)
    call.arguments["self"].autocast_device = device if device is not None and is_requested(common, device) else None
    yield


@around("fairseq.sequence_generator", "SequenceGenerator.generate")
@around("fairseq.sequence_scorer", "SequenceScorer.generate")
def generate_under_autocast(
    original: typing.Callable,
    self: typing.Any,
    models: typing.Sequence[typing.Any],
    *args: typing.Any,
    **kwargs: typing.Any,
) -> typing.Any:
    """Generate and score in the precision that the models store."""
    device = getattr(models[0], "autocast_device", None)
    if device is None:
        return original(self, models, *args, **kwargs)
    return under_autocast(original, device, self, models, *args, **kwargs)
