"""Time and peak memory of one layer."""

import argparse
import sys
from typing import Any, Dict

import torch

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import apart, measuring
from fairseq_mega.lab.benchmarks.layer_models import MODELS, build, check, output, paths_of, products
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, add_sweep_options, chosen_of
from fairseq_mega.lab.benchmarks.rows import Rows

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
    add_sweep_options(parser, autocast=True)
    add_common_options(parser, repeat=5)


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


def measure_apart(model: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Run :func:`measure` in a fresh process, or on a GPU in this one."""
    part = f"{model}:{length}"
    if arguments.device == "cpu":
        return apart.run_apart(part, arguments, f"{model} at L = {length}")
    try:
        return measure(part, arguments)
    finally:
        torch.cuda.empty_cache()


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
    lengths = [int(length) for length in arguments.lengths.split(",")]
    if arguments.tokens < max(lengths):
        sys.exit(f"--tokens {arguments.tokens} must be at least the longest of --lengths {arguments.lengths}")
    chosen = chosen_of(arguments.models, "--models", list(MODELS))
    models = [model for model in MODELS if model in chosen]
    for model in models:
        check(model, arguments)
    print("the measured paths agree with the reference, outputs and gradients", file=sys.stderr)
    measured: Dict[str, Dict[int, Dict[str, float]]] = {model: {} for model in models}
    left_out = {"lengths", "models", "sweeps", "json", "rows", "stop_after", "smoke", "benchmark", "given"}
    settings = {name: value for name, value in vars(arguments).items() if name not in left_out}
    kept = Rows(arguments.rows, settings, arguments.stop_after)
    for sweep in range(arguments.sweeps):
        for length in lengths:
            for model in models:
                part = {"model": model, "length": length, "sweep": sweep + 1}
                found = kept.find(**part)
                if found is None:
                    print(f"sweep {sweep + 1} of {arguments.sweeps}: {model}, L = {length}", file=sys.stderr)
                    found = kept.add(measure_apart(model, length, arguments), **part)
                measured[model][length] = measuring.keep_the_faster(measured[model].get(length, found), found)
    print(table(measured, arguments) + shares(measured, arguments))
    scores = {
        f"{model} L={length} {key}": value
        for model, by_length in measured.items()
        for length, values in by_length.items()
        for key, value in values.items()
    }
    measuring.write_measurements(arguments, scores, examples=arguments.tokens)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
