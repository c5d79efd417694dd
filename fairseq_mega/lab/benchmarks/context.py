"""Seconds to read a long text once, and bytes to keep it."""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Dict

import torch

from fairseq_mega.compat.features.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import apart, lm_pair, measuring
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, chosen_of
from fairseq_mega.models.streams.context import Context, load_context, read_tokens, save_context

DESCRIPTION = """\
Seconds to read a long text once, and bytes of its saved context.

Models with random weights read random tokens, write the file of --save-context and load it again. A Transformer of the
same size is not run: its bytes are computed from its cache, 2 d numbers of float32 for each layer and token. The
default number of tokens ends one token before the end of a chunk, so the file has its maximum size.
"""
MODELS = ("mega", "megalodon")
SMOKE = ("--tokens=63", "--width=32", "--layers=1", "--chunk=16", "--symbols=50")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``context``."""
    add = parser.add_argument
    add(
        "--models",
        default=",".join(MODELS),
        help=f"models, comma separated, of: {', '.join(MODELS)} (default: %(default)s)",
    )
    add("--tokens", type=int, default=2**20 - 1, help="tokens of the text (default: %(default)s)")
    add("--width", type=int, default=128, help="width d (default: %(default)s)")
    add("--layers", type=int, default=4, help="number of layers (default: %(default)s)")
    add("--chunk", type=int, default=128, help="attention chunk (default: %(default)s)")
    add("--symbols", type=int, default=256, help="size of the dictionary (default: %(default)s)")
    add_common_options(parser, repeat=None)


def measure(name: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure the seconds and CPU seconds to read, the seconds to load, and the bytes of the file."""
    configure_process()  # as fairseq-mega-interactive does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = lm_pair.build(name, arguments.width, arguments.layers, arguments.chunk, arguments.symbols, 1)
    model = model.to(arguments.device).eval()
    dictionary = lm_pair.task_of(arguments.symbols).dictionary
    tokens = torch.randint(4, arguments.symbols, (arguments.tokens + 1,)).tolist()
    read_tokens([model], tokens[:33], [None])  # excludes the one-time work of torch
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "context.safetensors"
        begun, begun_on_cpu = time.perf_counter(), time.process_time()
        _, states = read_tokens([model], tokens[:-1], [None])
        save_context(Context(states, tokens[-1]), file, [model], dictionary)
        read, read_on_cpu = time.perf_counter() - begun, time.process_time() - begun_on_cpu
        load_context(file, [model], dictionary)
        loaded = time.perf_counter() - begun - read
        size = file.stat().st_size
    return {
        "seconds": read,
        "cpu_seconds": read_on_cpu,  # equal unless other processes share the cores
        "load_seconds": loaded,
        "bytes": size,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and one for a Transformer, and write the result file."""
    names = chosen_of(arguments.models, "--models", MODELS)
    cache = 2 * arguments.width * 4 * arguments.layers * arguments.tokens
    scores: Dict[str, float] = {"transformer bytes": cache}
    print("| model | seconds | tokens/s | seconds to load | MiB |\n|---|---|---|---|---|")
    for name in names:
        found = apart.run_apart(name, arguments, name)
        scores.update({f"{name} {key}": value for key, value in found.items()})
        rate = f"{found['seconds']:.1f} | {arguments.tokens / found['seconds']:,.0f} | {found['load_seconds']:.2f}"
        print(f"| {name}, chunk {arguments.chunk} | {rate} | {found['bytes'] / 2**20:.2f} |", flush=True)
    print(f"| Transformer, by its formula | | | | {cache / 2**20:,.0f} |")
    measuring.write_measurements(arguments, scores, examples=arguments.tokens * len(names))


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
