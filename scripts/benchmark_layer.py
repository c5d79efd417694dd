#!/usr/bin/env python3
"""Time and peak memory of one MEGA layer against a Transformer layer of the same width, forward and backward.

Every measurement runs in a process of its own; on a GPU, whose allocator counts exactly, in this one. With --rows every
measurement is kept as a line of JSON at once, and the same command goes on from there. Before anything is timed, the
measured paths of the MEGA layer are compared in float32 with the reference paths, outputs and gradients; nothing is
printed if they differ. Run it on an otherwise idle machine.
"""

import argparse
import json
import os
import sys
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "transformer": "torch.nn.TransformerEncoderLayer, fused attention",
    "mega": "MEGA layer, full attention",
    "mega-chunk": "MEGA layer, attention in chunks",
    "published-chunk": "the same in the published arrangement: D x N x L powers and an FFT, attention written out",
    "explicit-transformer": "Transformer layer, attention written out (the paper's comparison)",
}
REFERENCE = {
    "FAIRSEQ_MEGA_EMA_PATH": "reference",
    "FAIRSEQ_MEGA_ATTENTION_PATH": "reference",
    "FAIRSEQ_MEGA_GATE_PATH": "reference",
}
PUBLISHED = {name: path for name, path in REFERENCE.items() if name != "FAIRSEQ_MEGA_EMA_PATH"}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--lengths", default="512,1024,2048,4096,8192", help="sequence lengths L, comma separated")
    parser.add_argument("--tokens", type=int, default=8192, help="tokens per batch: the batch size is this over L")
    parser.add_argument("--embed-dim", type=int, default=128, help="width d of both layers")
    parser.add_argument("--hidden-dim", type=int, default=256, help="MEGA: width v of the values and of the FFN")
    parser.add_argument("--z-dim", type=int, default=64, help="MEGA: width z of queries and keys")
    parser.add_argument("--n-dim", type=int, default=16, help="MEGA: EMA dimensions N")
    parser.add_argument("--chunk-size", type=int, default=128, help="MEGA-chunk: attention chunk C")
    parser.add_argument("--heads", type=int, default=4, help="Transformer: attention heads (its FFN is 4 d wide)")
    parser.add_argument(
        "--models",
        default=",".join(MODELS),
        help="what to measure, of " + "; ".join(f"{name}: {what}" for name, what in MODELS.items()),
    )
    parser.add_argument("--causal", action="store_true", help="MEGA: look into the past only")
    parser.add_argument("--attention", default="softmax", help="MEGA: attention function")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs per measurement; the median is reported")
    parser.add_argument("--sweeps", type=int, default=2, help="passes over all measurements; the faster median counts")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32", help="of weights and inputs")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    parser.add_argument("--rows", type=Path, help="keep every measurement here at once, and do not repeat those there")
    parser.add_argument("--stop-after", type=float, help="seconds after which nothing more is measured; status 75")
    parser.add_argument("--measure", metavar="MODEL:LENGTH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tokens < max(map(int, arguments.lengths.split(","))):
        parser.error(f"--tokens {arguments.tokens} must be at least the longest of --lengths {arguments.lengths}")
    unknown = set(arguments.models.split(",")) - set(MODELS)
    if unknown:
        parser.error(f"--models names {', '.join(sorted(unknown))}: choose from {', '.join(MODELS)}")
    return arguments


def build(model: str, length: int, arguments: argparse.Namespace) -> Any:
    """The layer under test, in training mode without dropout."""
    import torch

    from fairseq_mega.modules.config import MegaLayerConfig
    from fairseq_mega.modules.mega_layer import MegaLayer

    d = arguments.embed_dim
    if model in ("transformer", "explicit-transformer"):
        layer = torch.nn.TransformerEncoderLayer(
            d, arguments.heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        if model == "explicit-transformer":
            layer.self_attn = explicit_attention(layer.self_attn)
        return layer
    config = MegaLayerConfig(
        embed_dim=d,
        hidden_dim=arguments.hidden_dim,
        z_dim=arguments.z_dim,
        ema_dim=arguments.n_dim,
        ffn_dim=arguments.hidden_dim,
        chunk_size=-1 if model == "mega" else arguments.chunk_size,
        max_positions=length,
        bidirectional=not arguments.causal,
        attention_function=arguments.attention,
        normalize_before=True,
    )
    mega = MegaLayer(config)
    if model == "published-chunk":
        mega.attention.ema = published_ema(mega.attention.ema)
        os.environ.update(PUBLISHED)
    return mega


def published_ema(ours: Any) -> Any:
    """An EMA sub-layer with the parameters of ours, computed in the arrangement of the published code."""
    import torch
    import torch.nn.functional as F

    from fairseq_mega.benchmarks.kernels.published_ema import dxnxl_ema
    from fairseq_mega.benchmarks.kernels.shapes import Shape

    class PublishedEMA(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.alpha, self.delta, self.beta = ours.alpha, ours.delta, ours.beta
            self.eta, self.omega = ours.eta, ours.omega

        def forward(self, x: Any, **_: Any) -> Any:
            inputs = {"x": x, "alpha": self.alpha, "delta": self.delta, "beta": self.beta, "eta": self.eta}
            shape = Shape(x.size(0), x.size(2), ours.ema_dim, x.size(1))
            y = dxnxl_ema(inputs, shape, bidirectional=ours.bidirectional)
            return F.silu(y + x * self.omega), None

    return PublishedEMA()


def explicit_attention(fused: Any) -> Any:
    """Multi-head attention with the parameters of torch's, the weights written out as one matrix per head."""
    import torch

    class ExplicitAttention(torch.nn.Module):
        batch_first = True

        def __init__(self) -> None:
            super().__init__()
            self.fused = fused

        def forward(self, x: Any, *_: Any, **__: Any) -> Any:
            heads = fused.num_heads
            projected = torch.nn.functional.linear(x, fused.in_proj_weight, fused.in_proj_bias)
            q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in projected.chunk(3, dim=-1))
            weights = torch.softmax(q @ k.transpose(-2, -1) * q.size(-1) ** -0.5, dim=-1)
            return fused.out_proj((weights @ v).transpose(1, 2).flatten(2)), None

    return ExplicitAttention()


def output(layer: Any, x: Any) -> Any:
    result = layer(x)
    return getattr(result, "hidden", result)


def check(model: str, arguments: argparse.Namespace) -> None:
    """Compare the paths that are measured with the references; raises AssertionError where they differ."""
    import torch

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
    for tested, environment in ((layer, PUBLISHED if model == "published-chunk" else {}), (reference, REFERENCE)):
        for name in REFERENCE:
            os.environ.pop(name, None)
        os.environ.update(environment)
        x = torch.randn(2, length, arguments.embed_dim, generator=torch.Generator().manual_seed(1))
        x = x.to(arguments.device).requires_grad_()
        y = output(tested, x)
        gradients = torch.autograd.grad(y.square().mean(), [x, *tested.parameters()])
        results.append([y, *gradients])
    for name in REFERENCE:
        os.environ.pop(name, None)
    names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in reference.named_parameters())]
    for name, got, want in zip(names, *results):
        error = (got - want).norm() / want.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{model}: {name} differs from the reference by {error:.2g}; nothing is measured"


def measure(model: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Median seconds of a forward and backward pass and peak extra memory in MiB; runs in a process of its own."""
    import torch

    from fairseq_mega.benchmarks.measure import time_and_memory

    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    dtype = getattr(torch, arguments.dtype)
    batch = arguments.tokens // length

    def run(layer: Any, x: Any) -> None:
        output(layer, x).square().mean().backward()

    # First a short sequence, so that what torch loads and sets up once is not charged to the layer.
    run(build(model, 64, arguments).to(device, dtype), torch.randn(2, 64, arguments.embed_dim).to(device, dtype))
    layer = build(model, length, arguments).to(device, dtype)
    x = torch.randn(batch, length, arguments.embed_dim).to(device, dtype).requires_grad_()
    try:
        return time_and_memory(lambda: run(layer, x), arguments.repeat, device)
    finally:
        for name in REFERENCE:  # what build() has set for one model, where the next follows in this process
            os.environ.pop(name, None)


def measure_apart(model: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Run :func:`measure` in a fresh process, or on a GPU in this one."""
    import torch

    from fairseq_mega.benchmarks.measure import run_apart

    if arguments.device == "cpu":
        return run_apart(f"{model}:{length}", arguments, f"{model} at L = {length}")
    try:
        return measure(model, length, arguments)
    finally:
        torch.cuda.empty_cache()


def table(measured: Dict[str, Dict[int, Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """The measurements as a Markdown table, with ratios to the first of the models."""
    lines = ["| L | layer | ms | speed | peak MiB | memory |", "|---|---|---|---|---|---|"]
    first = next(iter(measured))
    for length in sorted(measured[first]):
        base = measured[first][length]
        for model in measured:
            found = measured[model][length]
            speed, memory = base["seconds"] / found["seconds"], found["memory_mib"] / max(base["memory_mib"], 1e-9)
            name = f"{model} {arguments.chunk_size}" if model.endswith("-chunk") else model
            lines.append(
                f"| {length} | {name} | {1e3 * found['seconds']:.1f} | {speed:.2f}x "
                f"| {found['memory_mib']:.0f} | {memory:.2f}x |"
            )
    return "\n".join(lines)


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(ROOT))
    if arguments.measure:
        model, length = arguments.measure.split(":")
        print(json.dumps(measure(model, int(length), arguments)))
        return
    from fairseq_mega.benchmarks.measure import keep_the_faster, write_measurements
    from fairseq_mega.benchmarks.rows import Rows

    models = [model for model in MODELS if model in arguments.models.split(",")]
    for model in models:
        check(model, arguments)
    print("the measured paths agree with the reference, outputs and gradients", file=sys.stderr)
    lengths = [int(length) for length in arguments.lengths.split(",")]
    measured: Dict[str, Dict[int, Dict[str, float]]] = {model: {} for model in models}
    left_out = ("lengths", "models", "sweeps", "json", "rows", "stop_after", "measure")
    settings = {name: value for name, value in vars(arguments).items() if name not in left_out}
    kept = Rows(arguments.rows, settings, arguments.stop_after)
    for sweep in range(arguments.sweeps):
        for length in lengths:
            for model in models:
                what = {"model": model, "length": length, "sweep": sweep + 1}
                found = kept.find(**what)
                if found is None:
                    print(f"sweep {sweep + 1} of {arguments.sweeps}: {model}, L = {length}", file=sys.stderr)
                    found = kept.add(measure_apart(model, length, arguments), **what)
                measured[model][length] = keep_the_faster(measured[model].get(length, found), found)
    print(table(measured, arguments))
    scores = {
        f"{model} L={length} {key}": value
        for model, by_length in measured.items()
        for length, values in by_length.items()
        for key, value in values.items()
    }
    write_measurements(arguments, "layer", scores, examples=arguments.tokens)


if __name__ == "__main__":
    main()
