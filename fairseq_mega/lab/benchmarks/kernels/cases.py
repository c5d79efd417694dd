"""All measured operators, and the reasons why a path cannot run."""

from typing import Dict, Optional

import torch

from fairseq_mega.lab.benchmarks.kernels.attention import attention_op
from fairseq_mega.lab.benchmarks.kernels.ema import ema_op
from fairseq_mega.lab.benchmarks.kernels.linear import linear_op
from fairseq_mega.lab.benchmarks.kernels.operators import Op, OpPath
from fairseq_mega.lab.benchmarks.kernels.timestep_norm import norm_op
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.dispatch import device_unsupported

OPS: Dict[str, Op] = {
    "ema": ema_op("EMA, causal"),
    "ema-bidirectional": ema_op("EMA, bidirectional", bidirectional=True),
    "ema-complex": ema_op("EMA, complex, causal", complex_=True),
    "attention": attention_op("attention, softmax, equal widths", "softmax", biased=False),
    "attention-softmax": attention_op("attention, softmax with relative bias", "softmax", biased=True),
    "attention-laplace": attention_op("attention, laplace with relative bias", "laplace", biased=True),
    "linear": linear_op(),
    "timestep-norm": norm_op(),
}


def missing(path: OpPath, device: torch.device) -> Optional[str]:
    """Return the reason why a path cannot run on the device, or None."""
    if path.cuda_only and device.type != "cuda":
        return "a path for CUDA"
    if path.cpu_only and device.type != "cpu":
        return "a path for CPUs"
    if not path.compiled:
        return None
    if device_unsupported(device) is None:
        return None
    return "no compiled kernels" if native.PROBLEM is not None else "no compiled kernels for this device"
