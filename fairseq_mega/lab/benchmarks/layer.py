"""Time and peak memory of one layer."""

import argparse
import contextlib
import math
import os
import sys
from functools import partial
from typing import Any, ContextManager, Dict, Iterator, List

import torch

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_sweep_options, chosen_of, numbers_of
from fairseq_mega.lab.benchmarks.published import PUBLISHED, PublishedEMA
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
    "explicit-transformer": "Transformer layer, attention written out (the paper's comparison)",
}
REFERENCE = f"ema=reference,{PUBLISHED}"
DESCRIPTION = """\
Time and peak memory of one MEGA layer against a Transformer layer of the same width, forward and backward.

"kept" is the memory that the forward pass leaves allocated for the backward pass, including its result; it does not
depend on the load of the machine. Every measurement runs in a separate process, or in this process on a GPU, whose
allocator counts exactly. With --rows every measurement is written as a line of JSON at once, and the same command
continues. First, outputs and gradients of the measured paths of the MEGA layer are compared in float32 with the
reference paths; nothing is measured if they differ. The models:

""" + "\n".join(f"  {name}: {meaning}" for name, meaning in MODELS.items())
SMOKE = (
    *("--lengths=16", "--tokens=32", "--embed-dim=8", "--hidden-dim=16", "--z-dim=4", "--n-dim=2"),
    *("--chunk-size=8", "--heads=2", "--repeat=1", "--sweeps=1"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``layer``."""
    add = parser.add_argument
    add("--lengths", default="512,1024,2048,4096,8192", help="lengths L, comma separated (default: %(default)s)")
    add(
        "--tokens",
        type=int,
        default=8192,
        help="tokens of a batch, whose size is this number over L (default: %(default)s)",
    )
    add("--embed-dim", type=int, default=128, help="width d of both layers (default: %(default)s)")
    add("--hidden-dim", type=int, default=256, help="MEGA: width v of values and FFN (default: %(default)s)")
    add("--z-dim", type=int, default=64, help="MEGA: width z of queries and keys (default: %(default)s)")
    add("--n-dim", type=int, default=16, help="MEGA: EMA dimensions N (default: %(default)s)")
    add("--chunk-size", type=int, default=128, help="MEGA-chunk: attention chunk C (default: %(default)s)")
    add("--heads", type=int, default=4, help="Transformer: heads; its FFN is 4 d wide (default: %(default)s)")
    add("--models", default=",".join(MODELS), help="models, comma separated (default: all)")
    add("--causal", action="store_true", help="MEGA: attend to past positions only")
    add("--attention", default="softmax", help="MEGA: attention function (default: %(default)s)")
    add_sweep_options(parser, ["float32", "bfloat16", "autocast"])
    add_common_options(parser, repeat=5)


@contextlib.contextmanager
def forced(paths: str) -> Iterator[None]:
    """Force the paths of operators, a value of FAIRSEQ_MEGA_PATHS."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = paths
    try:
        yield
    finally:
        del os.environ[VARIABLE]
        if before is not None:
            os.environ[VARIABLE] = before


def paths_of(model: str) -> ContextManager[None]:
    """Force the paths of the published code for a model in its arrangement."""
    return forced(PUBLISHED) if "published" in model else contextlib.nullcontext()


class ExplicitAttention(torch.nn.Module):
    """Torch's multi-head attention with explicit weights, one matrix per head."""

    batch_first = True

    def __init__(self, fused: Any) -> None:
        super().__init__()
        self.fused = fused

    def forward(self, x: Any, *_: Any, **__: Any) -> Any:
        """Return the outputs (B, L, D), and no weights."""
        fused = self.fused
        projected = torch.nn.functional.linear(x, fused.in_proj_weight, fused.in_proj_bias)
        q, k, v = (part.unflatten(-1, (fused.num_heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1))
        weights = torch.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, dim=-1)
        return fused.out_proj((weights @ v).transpose(1, 2).flatten(2)), None


def build(model: str, length: int, arguments: argparse.Namespace) -> Any:
    """Build the measured layer, in training mode without dropout."""
    d = arguments.embed_dim
    if model in ("transformer", "explicit-transformer"):
        layer = torch.nn.TransformerEncoderLayer(
            d, arguments.heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        if model == "explicit-transformer":
            layer.self_attn = ExplicitAttention(layer.self_attn)  # type: ignore[assignment]
        return layer
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
        rest = {"max_positions": length, "attention_function": arguments.attention, "normalize_before": True}
        ours = MegaLayer(MegaLayerConfig(**sizes, **rest, bidirectional=not arguments.causal))
    if "published" in model:
        ours.attention.ema = PublishedEMA(ours.attention.ema)
    return ours


def products(model: str, length: int, arguments: argparse.Namespace) -> float:
    """Return the operations of the matrix products of a layer of ours in a pass; 0 for other layers."""
    from fairseq_mega.models.cost import training_products  # imports fairseq, which a measured process does not need

    if not model.startswith("mega") or "published" in model:
        return 0.0
    return arguments.tokens // length * length * training_products(build(model, length, arguments), length)


def output(layer: Any, x: Any) -> Any:
    """Return the hidden states among the results of a layer."""
    result = layer(x)
    return getattr(result, "hidden", result)


def check(model: str, arguments: argparse.Namespace) -> None:
    """Compare the measured paths with the references; raise AssertionError if they differ."""
    torch.manual_seed(0)
    length = 3 * arguments.chunk_size + 5
    layer = build(model, length, arguments).to(arguments.device)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    results: List[List[Any]] = []
    reference = build(model.replace("published", "mega").replace("explicit-", ""), length, arguments)
    reference = reference.to(arguments.device)
    with torch.no_grad():
        for target, source in zip(reference.parameters(), layer.parameters()):
            target.copy_(source)
    for tested, paths in ((layer, paths_of(model)), (reference, forced(REFERENCE))):
        x = torch.randn(2, length, arguments.embed_dim, generator=torch.Generator().manual_seed(1))
        x = x.to(arguments.device).requires_grad_()
        with paths:
            y = output(tested, x)
            gradients = torch.autograd.grad(y.square().mean(), [x, *tested.parameters()])
        results.append([y, *gradients])
    names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in reference.named_parameters())]
    for name, got, want in zip(names, *results):
        error = (got - want).norm() / want.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{model}: {name} differs from the reference by {error:.2g}; nothing is measured"


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure a step of MODEL:LENGTH: median seconds, peak extra memory, and memory kept for the backward pass (in
    MiB).
    """
    model, length = part.split(":")[0], int(part.split(":")[1])
    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    autocast = arguments.dtype == "autocast"
    dtype = torch.float32 if autocast else getattr(torch, arguments.dtype)
    batch = arguments.tokens // length

    configure_process()  # as fairseq-mega-train does

    def forward(layer: Any, x: Any) -> Any:
        with torch.autocast(device.type, torch.bfloat16, enabled=autocast):
            return output(layer, x)

    def step(layer: Any, x: Any) -> None:
        forward(layer, x).square().mean().backward()

    with paths_of(model):
        # A short sequence first excludes the one-time work of torch.
        step(build(model, 64, arguments).to(device, dtype), torch.randn(2, 64, arguments.embed_dim).to(device, dtype))
        layer = build(model, length, arguments).to(device, dtype)
        x = torch.randn(batch, length, arguments.embed_dim).to(device, dtype).requires_grad_()
        found = measuring.time_and_memory(lambda: step(layer, x), arguments.repeat, device)
        return {**found, "kept_mib": measuring.kept_mib(lambda: forward(layer, x), device)}


def table(measured: Dict[str, Dict[int, Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """Return the measurements as a Markdown table, with ratios to the first model."""
    lines = ["| L | layer | ms | speed | peak MiB | memory | kept MiB |", "|---|---|---|---|---|---|---|"]
    first = next(iter(measured))
    for length in sorted(measured[first]):
        base = measured[first][length]
        for model in measured:
            found = measured[model][length]
            speed, memory = base["seconds"] / found["seconds"], found["memory_mib"] / max(base["memory_mib"], 1e-9)
            name = f"{model} {arguments.chunk_size}" if model.endswith("-chunk") else model
            lines.append(
                f"| {length} | {name} | {1e3 * found['seconds']:.1f} | {speed:.2f}x "
                f"| {found['memory_mib']:.0f} | {memory:.2f}x | {found['kept_mib']:.0f} |"
            )
    return "\n".join(lines)


def shares(measured: Dict[str, Dict[int, Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """Return a line for each MEGA layer in float32 on a CPU: its products' operations over the whole layer's time."""
    on_cpu = arguments.device == "cpu" and arguments.dtype == "float32"
    peak = measuring.float32_peak(arguments.threads) if on_cpu else None
    lines = []
    for model, by_length in measured.items():
        for length, found in by_length.items():
            rate = products(model, length, arguments) / found["seconds"]
            if peak is not None and rate > 0.0:
                share = f"{rate / 1e9:.0f} of {peak / 1e9:.0f} GFLOP/s ({rate / peak:.0%})"
                lines.append(f"{model}, L = {length}: products make {share}, the rest of the layer included")
    return "".join(f"\n{line}" for line in lines)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per length and model, and write the result file."""
    lengths = numbers_of(arguments.lengths)
    if arguments.tokens < max(lengths):
        raise ValueError(f"--tokens {arguments.tokens}: give at least the longest of --lengths {arguments.lengths}")
    chosen = chosen_of(arguments.models, "--models", list(MODELS))
    models = [model for model in MODELS if model in chosen]
    for model in models:
        check(model, arguments)
    print("the measured paths agree with the reference, outputs and gradients", file=sys.stderr)
    measured: Dict[str, Dict[int, Dict[str, float]]] = {model: {} for model in models}
    omitted = {"lengths", "models", "sweeps", "json", "rows", "stop_after", "smoke", "benchmark", "given"}
    settings = {name: value for name, value in vars(arguments).items() if name not in omitted}
    kept = measuring.Rows(arguments, settings)
    for sweep in range(arguments.sweeps):
        for length in lengths:
            for model in models:
                found = kept.of(
                    partial(measuring.run_once, f"{model}:{length}", arguments),
                    model=model,
                    length=length,
                    sweep=sweep + 1,
                )
                measured[model][length] = measuring.keep_the_faster(measured[model].get(length, {}), found)
    print(table(measured, arguments) + shares(measured, arguments))
    scores = {
        f"{model} L={length} {key}": value
        for model, by_length in measured.items()
        for length, values in by_length.items()
        for key, value in values.items()
    }
    measuring.write_measurements(arguments, scores, examples=arguments.tokens)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
