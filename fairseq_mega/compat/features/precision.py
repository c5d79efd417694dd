"""--precision, an option of every command of fairseq that trains or evaluates, and mixed precision in bfloat16.

The option is one name in place of several flags:

* fp32: float32 throughout
* tf32: float32, whose products a GPU may round to 10 bits (NVIDIA Ampere and later)
* bf16: products in bfloat16; weights, statistics, softmax, norms and the optimiser in float32 (--amp --bf16)
* fp16: float16 like fairseq's --fp16, with a scaled loss; on a GPU
* auto: bf16 if it is fast, which is measured on a CPU in some milliseconds; else fp32

fairseq's --amp means float16 on a GPU, with a scaler of gradients, and has no effect on a CPU. bfloat16 has float32's
range and requires no scaler: the trainer trains as in float32, and only the criterion is called under autocast.
"""

import argparse
import copy
import functools
import logging
import os
import time
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Sequence

import torch

from fairseq_mega.compat import hooks
from fairseq_mega.compat.patching import around

logger = logging.getLogger("fairseq_mega.precision")
PRECISIONS = ("fp32", "tf32", "bf16", "fp16", "auto")
MEANING = "precision of matrix products; auto: bf16 where it is fast, else fp32"
AMPERE = (8, 0)  # compute capability of the first GPUs with products of bfloat16 and TF32
WORTH = 2.0  # minimum speed of bfloat16 relative to float32: below, the rest of the computation cancels the gain
SHAPE = (256, 512, 512)  # rows, inner and columns: 0.13 GFLOP, about a millisecond of one core in float32
REPEATS = 5
LONGEST = 0.05  # seconds; a slower bfloat16 product is not measured again
FLAGS = ("fp16", "bf16", "amp", "memory_efficient_fp16", "memory_efficient_bf16")
SETS: Dict[str, Sequence[str]] = {  # fairseq's flags for a precision, the most exact first
    "fp32": (),
    "tf32": (),
    "bf16": ("amp", "bf16"),
    "fp16": ("fp16",),
}


class Choice(NamedTuple):
    """A precision of PRECISIONS other than auto, and the reason for it."""

    precision: str
    reason: str


def product_seconds() -> Dict[torch.dtype, float]:
    """Return the minimum time of a matrix product on one core, measured in turn for float32 and bfloat16.

    The time is the thread's CPU time, which depends little on the load of the machine.
    """
    rows, inner, columns = SHAPE
    best = {torch.float32: float("inf"), torch.bfloat16: float("inf")}
    for repeat in range(REPEATS + 1):
        for dtype in best:
            left, right = (torch.full(size, 0.5, dtype=dtype) for size in ((rows, inner), (inner, columns)))
            began = time.thread_time()
            torch.mm(left, right)
            seconds = time.thread_time() - began
            if repeat > 0:  # the library initializes in the first product
                best[dtype] = min(best[dtype], seconds)
        if LONGEST < best[torch.bfloat16] < float("inf"):
            break
    return best


@functools.lru_cache(maxsize=None)
def bfloat16_speedup() -> float:
    """Return the speed of bfloat16 products on this CPU as a multiple of float32's; measured once per process."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        seconds = product_seconds()
    finally:
        torch.set_num_threads(threads)
    return round(seconds[torch.float32] / seconds[torch.bfloat16], 2)


def of(common: Mapping[str, Any]) -> str:
    """Return the precision of a training with these options of fairseq; TF32, which has no option, counts as fp32."""
    return next((name for name, flags in SETS.items() if any(common.get(flag) for flag in flags)), "fp32")


def choose(precision: str, device: str) -> Choice:
    """Return the precision that `precision` means on a device, "cpu" or "cuda".

    Raises:
        ValueError: for an unknown precision, or one that the device lacks.
    """
    if precision not in PRECISIONS:
        raise ValueError(f"--precision {precision}: give one of {', '.join(PRECISIONS)}")
    if device == "cpu":
        if precision == "auto":
            speedup = bfloat16_speedup()
            reason = f"this CPU multiplies bfloat16 {speedup:g} times as fast as float32"
            return Choice("bf16" if speedup >= WORTH else "fp32", reason)
        if precision in ("tf32", "fp16"):
            raise ValueError(f"--precision {precision} needs a GPU: on a CPU give bf16, fp32 or auto")
        return Choice(precision, "requested")
    capability = torch.cuda.get_device_capability()
    if precision == "auto":
        return Choice("bf16" if capability >= AMPERE else "fp32", f"{torch.cuda.get_device_name()}")
    if precision in ("tf32", "bf16") and capability < AMPERE:
        raise ValueError(
            f"--precision {precision} needs an NVIDIA GPU of compute capability 8.0 or later, and "
            f"{torch.cuda.get_device_name()} has {capability[0]}.{capability[1]}: give fp16, fp32 or auto"
        )
    return Choice(precision, "requested")


def device_of(common: Any) -> str:
    """Return the type of device of fairseq's options, "cpu" or "cuda"."""
    return "cuda" if torch.cuda.is_available() and not common.cpu else "cpu"


def parse_precision(call: hooks.Call) -> Iterator[None]:
    """Add --precision to fairseq's commands, and turn it into fairseq's own flags (event "parse")."""
    parser = call.arguments["parser"]
    if "--precision" not in parser._option_string_actions:
        parser.add_argument(
            "--precision", choices=PRECISIONS, help=f"{MEANING} (default: that of --fp16, --bf16 or --amp, else fp32)"
        )
    yield
    if getattr(hooks.parsed(call), "precision", None) is not None:
        set_flags(hooks.parsed(call))


def separate_bf16_from_tpu(call: hooks.Call) -> Iterator[None]:
    """Make --bf16 run on CPU and GPU: fairseq's parser turns it into --tpu (event "parse")."""
    yield
    if getattr(hooks.parsed(call), "bf16", False):
        hooks.parsed(call).tpu = "--tpu" in hooks.words(call)


def set_flags(namespace: argparse.Namespace) -> None:
    """Replace --precision by fairseq's flags in parsed arguments; raises ValueError if both are passed."""
    both = [flag for flag in FLAGS if getattr(namespace, flag, False)]
    if both:
        raise ValueError(
            f"--precision {namespace.precision} and --{both[0].replace('_', '-')} both set the precision: omit one"
        )
    device = device_of(namespace)
    choice = choose(namespace.precision, device)
    logger.info(f"precision: {choice.precision} ({choice.reason})")
    del namespace.precision
    for flag in SETS[choice.precision]:
        setattr(namespace, flag, True)
    if device == "cuda":
        _allow_rounding_on_gpus(choice.precision)


def _allow_rounding_on_gpus(precision: str) -> None:
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    if precision == "tf32":  # for the processes that this one starts for further GPUs
        os.environ["TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"] = "1"


def evaluating(precision: str, device: str) -> torch.autocast:
    """Return a context whose products have a precision of PRECISIONS, without gradients; raises as `choose`."""
    chosen = choose(precision, device).precision
    if device == "cuda":
        _allow_rounding_on_gpus(chosen)
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}
    return torch.autocast(device, half.get(chosen, torch.bfloat16), enabled=chosen in half)


def autocast_device(common: Any) -> Optional[str]:
    """Return the device of autocast to bfloat16, None without: by --amp and --bf16, on a CPU by --amp alone."""
    device = device_of(common)
    return device if common.amp and (common.bf16 or device == "cpu") else None


def under_autocast(function: Callable, device: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function with products in bfloat16."""
    with torch.autocast(device, torch.bfloat16):
        return function(*args, **kwargs)


def train_under_autocast(call: hooks.Call) -> Iterator[None]:
    """Make --amp train in bfloat16 on the CPU, and with --bf16 on every device (event "build")."""
    trainer = call.arguments["self"]
    trainer.autocast_device = autocast_device(call.arguments["cfg"].common)
    if trainer.autocast_device is None:
        yield
        return
    plain = copy.deepcopy(call.arguments["cfg"])
    plain.common.amp = plain.common.bf16 = False  # the trainer itself works in float32
    call.arguments["cfg"] = plain
    yield
    criterion = trainer.get_criterion()
    criterion.forward = functools.partial(under_autocast, criterion.forward, trainer.autocast_device)


def record_precision(call: hooks.Call) -> Iterator[None]:
    """Record the flags of the precision in checkpoints of trainings under autocast (event "state")."""
    yield
    if call.arguments["self"].autocast_device is not None:
        call.result["cfg"]["common"].update(amp=True, bf16=True)


def evaluate_under_autocast(call: hooks.Call) -> Iterator[None]:
    """Make commands that read --path follow the flags of an --amp training (event "run"): fairseq's follow --fp16."""
    cfg = call.arguments["cfg"]
    device = autocast_device(cfg.common)
    if device is not None and cfg.common_eval.path is not None:
        call.arguments["main"] = functools.partial(under_autocast, call.arguments["main"], device)
    yield


def remember_autocast(call: hooks.Call) -> Iterator[None]:
    """Store the precision of fairseq-generate, which has no event "run", in its models (event "infer")."""
    common = getattr(call.arguments["cfg"], "common", None)  # other code may pass the options of a command
    call.arguments["self"].autocast_device = None if common is None else autocast_device(common)
    yield


@around("fairseq.sequence_generator", "SequenceGenerator.generate")
@around("fairseq.sequence_scorer", "SequenceScorer.generate")
def generate_under_autocast(original: Callable, self: Any, models: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
    """Generate and score in the precision that the models store."""
    device = getattr(models[0], "autocast_device", None)
    if device is None:
        return original(self, models, *args, **kwargs)
    return under_autocast(original, device, self, models, *args, **kwargs)
