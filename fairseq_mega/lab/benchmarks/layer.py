"""Time and peak memory of one layer."""

import argparse
import math
import os
from functools import partial
from typing import Any, Dict, List
from unittest import mock

import torch

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_numbers, chosen_of, numbers_of
from fairseq_mega.lab.benchmarks.kernels import dxnxl_ema
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.modules.megalodon.config import MegalodonLayerConfig
from fairseq_mega.modules.megalodon.layer import MegalodonLayer
from fairseq_mega.ops.common.dispatch import VARIABLE

MODELS = {
    "transformer": "torch.nn.TransformerEncoderLayer, fused attention",
    "mega": "MEGA layer, full attention",
    "mega-chunk": "MEGA layer, attention in chunks",
    "published-chunk": "the same in the published arrangement: D x N x L powers and an FFT, attention written out",
    "megalodon-chunk": "MEGALODON layer, causal, attention in chunks",
    "megalodon-published": "the same in the published arrangement: D x N x L powers and an FFT, attention written out",
}
WRITTEN_OUT = ("activation", "attention", "dropout", "gate", "norm", "query_key")  # in the published code
PUBLISHED = ",".join(f"{operator}=reference" for operator in WRITTEN_OUT)  # a value of FAIRSEQ_MEGA_PATHS
DESCRIPTION = """\
Every measurement runs in a separate process, or in this process on a GPU, whose
allocator counts exactly. The models:

""" + "\n".join(f"  {name}: {meaning}" for name, meaning in MODELS.items())
SMOKE = (
    *("--lengths=16", "--tokens=32", "--embed-dim=8", "--hidden-dim=16", "--z-dim=4", "--n-dim=2"),
    *("--chunk-size=8", "--heads=2", "--repeat=1", "--sweeps=1"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``layer``."""
    add = parser.add_argument
    add("--lengths", default="512,1024,2048,4096,8192", help="lengths L, comma separated (default: %(default)s)")
    batch = "tokens of a batch, whose size is this number over L (default: %(default)s)"
    add("--tokens", type=int, default=8192, help=batch)
    add_numbers(parser, embed_dim=128, hidden_dim=256, z_dim=64, n_dim=16, chunk_size=128, heads=4)
    add("--models", default=",".join(MODELS), help="models, comma separated (default: all)")
    add("--causal", action="store_true", help="MEGA: attend to past positions only")
    add_common_options(parser, repeat=5, sweeps=2, dtypes=["float32", "bfloat16", "autocast"])


class PublishedEMA(torch.nn.Module):
    """An EMA sub-layer of this package, MEGA's or MEGALODON's, computed in the arrangement of the published code."""

    def __init__(self, ours: Any) -> None:
        super().__init__()
        for name, parameter in ours.named_parameters():
            self.register_parameter(name, parameter)
        self.bidirectional = ours.bidirectional

    def forward(self, x: Any, **_: Any) -> Any:
        """Return the outputs (B, L, D), and no state."""
        parameters = dict(self.named_parameters())
        skipped = x * parameters.pop("omega")
        y = dxnxl_ema({"x": x, **parameters}, self.bidirectional) + skipped
        return y if "theta" in parameters else torch.nn.functional.silu(y), None


def build(model: str, length: int, arguments: argparse.Namespace) -> Any:
    """Build the measured layer, in training mode without dropout."""
    d = arguments.embed_dim
    if model == "transformer":
        options: Dict[str, Any] = {"dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        return torch.nn.TransformerEncoderLayer(d, arguments.heads, 4 * d, **options)
    sizes = {
        "embed_dim": d,
        "hidden_dim": arguments.hidden_dim,
        "z_dim": arguments.z_dim,
        "ema_dim": arguments.n_dim,
        "ffn_dim": arguments.hidden_dim,
        "chunk_size": -1 if model == "mega" else arguments.chunk_size,
    }
    ours: Any
    if model.startswith("megalodon"):  # causal, with one head and a plain FFN
        ours = MegalodonLayer(MegalodonLayerConfig(**sizes, norm_groups=math.gcd(d, 32)))
    else:
        both = not arguments.causal
        ours = MegaLayer(MegaLayerConfig(**sizes, max_positions=length, normalize_before=True, bidirectional=both))
    if "published" in model:
        ours.attention.ema = PublishedEMA(ours.attention.ema)
    return ours


def output(layer: Any, x: Any) -> Any:
    """Return the hidden states among the results of a layer."""
    result = layer(x)
    return getattr(result, "hidden", result)


def measure(arguments: argparse.Namespace, model: str, length: int) -> measuring.Figures:
    """Measure the median seconds and the peak extra memory of a step."""
    device = torch.device(arguments.device)
    autocast = arguments.dtype == "autocast"
    dtype = torch.float32 if autocast else getattr(torch, arguments.dtype)
    configure_process()  # as fairseq-mega-train does

    def step(layer: Any, x: Any) -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            y = output(layer, x)
        y.square().mean().backward()

    with mock.patch.dict(os.environ, {VARIABLE: PUBLISHED} if "published" in model else {}):
        # A short sequence first excludes the one-time work of torch.
        step(build(model, 64, arguments).to(device, dtype), torch.randn(2, 64, arguments.embed_dim).to(device, dtype))
        layer = build(model, length, arguments).to(device, dtype)
        x = torch.randn(arguments.tokens // length, length, arguments.embed_dim).to(device, dtype).requires_grad_()
        return measuring.time_and_memory(lambda: step(layer, x), arguments.repeat, device)


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each length and model, compared with the first model."""
    lengths = numbers_of(arguments.lengths)
    if arguments.tokens < max(lengths):
        raise ValueError(f"--tokens {arguments.tokens}: give at least the longest of --lengths {arguments.lengths}")
    chosen = chosen_of(arguments.models, "--models", list(MODELS))
    models = [model for model in MODELS if model in chosen]
    return [
        measuring.Case(
            f"{model} L={length}",
            {"model": model, "length": length},
            items=arguments.tokens // length * length,
            against=f"{models[0]} L={length}",
        )
        for length in sorted(lengths)
        for model in models
    ]


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases), measure, SMOKE)
