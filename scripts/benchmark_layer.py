#!/usr/bin/env python3
"""Time and peak memory of one MEGA layer against a Transformer layer of the same width, forward and backward.

Every measurement runs in a process of its own. Before anything is timed, the measured paths of the MEGA layer are
compared with the reference paths, outputs and gradients; nothing is printed if they differ. Run it on an otherwise idle
machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parent.parent
MODELS = {
    "transformer": "torch.nn.TransformerEncoderLayer, fused attention",
    "mega": "MEGA layer, full attention",
    "mega-chunk": "MEGA layer, attention in chunks",
}
REFERENCE = {"FAIRSEQ_MEGA_EMA_PATH": "reference", "FAIRSEQ_MEGA_ATTENTION_PATH": "reference"}


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
    parser.add_argument("--attention", default="softmax", help="MEGA: attention function")
    parser.add_argument("--repeat", type=int, default=5, help="timed runs per measurement; the median is reported")
    parser.add_argument("--sweeps", type=int, default=2, help="passes over all measurements; the faster median counts")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure")
    parser.add_argument("--json", type=Path, help="also write the measurements to this file")
    parser.add_argument("--measure", metavar="MODEL:LENGTH", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.tokens < max(map(int, arguments.lengths.split(","))):
        parser.error(f"--tokens {arguments.tokens} must be at least the longest of --lengths {arguments.lengths}")
    return arguments


def build(model: str, length: int, arguments: argparse.Namespace) -> Any:
    """The layer under test, in training mode without dropout."""
    import torch

    from fairseq_mega.modules.config import MegaLayerConfig
    from fairseq_mega.modules.mega_layer import MegaLayer

    d = arguments.embed_dim
    if model == "transformer":
        return torch.nn.TransformerEncoderLayer(
            d, arguments.heads, 4 * d, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
    config = MegaLayerConfig(
        embed_dim=d,
        hidden_dim=arguments.hidden_dim,
        z_dim=arguments.z_dim,
        ema_dim=arguments.n_dim,
        ffn_dim=arguments.hidden_dim,
        chunk_size=arguments.chunk_size if model == "mega-chunk" else -1,
        max_positions=length,
        bidirectional=True,
        attention_function=arguments.attention,
        normalize_before=True,
    )
    return MegaLayer(config)


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
    for environment in ({}, REFERENCE):
        os.environ.update(environment)
        x = torch.randn(2, length, arguments.embed_dim, generator=torch.Generator().manual_seed(1))
        x = x.to(arguments.device).requires_grad_()
        y = output(layer, x)
        gradients = torch.autograd.grad(y.square().mean(), [x, *layer.parameters()])
        results.append([y, *gradients])
    for name in REFERENCE:
        del os.environ[name]
    names = ["output", "gradient of x", *(f"gradient of {name}" for name, _ in layer.named_parameters())]
    for name, got, want in zip(names, *results):
        error = (got - want).norm() / want.norm().clamp(min=1e-6)
        assert error < 1e-4, f"{model}: {name} differs from the reference by {error:.2g}; nothing is measured"


def measure(model: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Median seconds of a forward and backward pass and peak extra memory in MiB; runs in a process of its own."""
    import torch

    torch.set_num_threads(arguments.threads)
    device = torch.device(arguments.device)
    batch = arguments.tokens // length

    def run(layer: Any, x: Any) -> None:
        output(layer, x).square().mean().backward()

    # First a short sequence, so that what torch loads and sets up once is not charged to the layer.
    run(build(model, 64, arguments).to(device), torch.randn(2, 64, arguments.embed_dim, device=device))
    layer = build(model, length, arguments).to(device)
    x = torch.randn(batch, length, arguments.embed_dim, device=device, requires_grad=True)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() / 2**20
    else:
        before = reset_peak_memory()
    seconds = []
    for _ in range(arguments.repeat + 1):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        run(layer, x)
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    if device.type == "cuda":
        peak = torch.cuda.max_memory_allocated() / 2**20
    else:
        peak = resident_mib("VmHWM")
    return {"seconds": statistics.median(seconds[1:]), "memory_mib": peak - before}


def resident_mib(field: str) -> float:
    """This process's resident memory in MiB: VmRSS for now, VmHWM for its peak (Linux)."""
    found = re.search(rf"^{field}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found, f"/proc/self/status has no {field}; measuring memory needs Linux"
    return int(found.group(1)) / 2**10


def reset_peak_memory() -> float:
    """Forget the peak so far and return the resident memory now, in MiB (Linux)."""
    Path("/proc/self/clear_refs").write_text("5")
    return resident_mib("VmRSS")


def measure_apart(model: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Run :func:`measure` in a fresh process."""
    command = [sys.executable, __file__, *sys.argv[1:], "--measure", f"{model}:{length}"]
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"measuring {model} at L = {length} failed:\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def table(measured: Dict[str, Dict[int, Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """The measurements as a Markdown table, with ratios to the Transformer layer."""
    lines = ["| L | layer | ms | speed | peak MiB | memory |", "|---|---|---|---|---|---|"]
    for length in sorted(measured["transformer"]):
        base = measured["transformer"][length]
        for model in MODELS:
            found = measured[model][length]
            speed, memory = base["seconds"] / found["seconds"], found["memory_mib"] / max(base["memory_mib"], 1e-9)
            name = f"{model} {arguments.chunk_size}" if model == "mega-chunk" else model
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
    from fairseq_mega.cli.results import make_result, write_result

    for model in ("mega", "mega-chunk"):
        check(model, arguments)
    print("the measured paths agree with the reference, outputs and gradients", file=sys.stderr)
    lengths = [int(length) for length in arguments.lengths.split(",")]
    measured: Dict[str, Dict[int, Dict[str, float]]] = {model: {} for model in MODELS}
    for sweep in range(arguments.sweeps):
        for length in lengths:
            for model in MODELS:
                print(f"sweep {sweep + 1} of {arguments.sweeps}: {model}, L = {length}", file=sys.stderr)
                found = measure_apart(model, length, arguments)
                best = measured[model].get(length, found)
                measured[model][length] = {key: min(best[key], found[key]) for key in found}
    print(table(measured, arguments))
    if arguments.json:
        settings = {key: value for key, value in vars(arguments).items() if key not in ("json", "measure")}
        scores = {
            f"{model} L={length} {key}": value
            for model, by_length in measured.items()
            for length, values in by_length.items()
            for key, value in values.items()
        }
        command = "python scripts/benchmark_layer.py " + " ".join(sys.argv[1:])
        write_result(
            arguments.json,
            make_result("layer", f"layer-{arguments.device}", scores, arguments.tokens, command, settings=settings),
        )


if __name__ == "__main__":
    main()
