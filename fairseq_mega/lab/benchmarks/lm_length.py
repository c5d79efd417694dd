"""Training speed and peak memory of language models over the length of their blocks."""

import argparse
from typing import Any, Dict

import torch
import torch.nn.functional as F

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_size_options, chosen_of, numbers_of
from fairseq_mega.lab.recipes.catalogue import catalogue

DESCRIPTION = """\
One update's forward and backward pass over one block, tokens per second and peak memory on top of the model. MEGA and
MEGALODON in chunks should take the same time per token from 4,096 on. Lengths that would take longer than --time-limit
are skipped. A model can also be a recipe's, such as megalodon/figure4/11m/llama, with the recipe's sizes.
"""
MODELS = (*models.MODELS, "megalodon", "llama")
LINEAR = ("mega", "megalodon")  # their time is proportional to the length
SIZES = ("width", "layers", "chunk")  # options of MODELS alone
SMOKE = ("--lengths=32,64", "--width=32", "--layers=1", "--chunk=16", "--repeat=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lm-length``."""
    add = parser.add_argument
    add("--lengths", default="1024,4096,16384,65536", help="tokens of a block, comma separated (default: %(default)s)")
    add(
        "--models",
        default="mega,transformer",
        help=f"models, or recipes; models: {', '.join(MODELS)} (default: %(default)s)",
    )
    add_size_options(parser, width=128, layers=4, chunk=128, symbols=256)
    add("--time-limit", type=float, default=60.0, help="maximum seconds of one run (default: %(default)s)")
    add(
        "--dtype",
        choices=["float32", "bfloat16"],
        default="float32",
        help="dtype of the weights (default: %(default)s)",
    )
    add_common_options(parser, repeat=3)


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure seconds and memory of a forward and backward pass of MODEL:LENGTH, and count its parameters."""
    name, length = part.split(":")[0], int(part.split(":")[1])
    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, arguments.chunk, arguments.symbols, length)
    if name in MODELS:
        model = models.build(name, *sizes)
    else:
        model = models.build_recipe(name, arguments.symbols, length, arguments.smoke)
    model = model.to(arguments.device, getattr(torch, arguments.dtype)).train()

    def loss_of(tokens: Any) -> Any:
        logits = model(tokens[:, :-1])[0].float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    tokens = torch.randint(4, arguments.symbols, (1, length + 1), device=arguments.device)
    return models.measure_training(model, loss_of, tokens, 33, arguments)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and length, and write the result file."""
    known = [name for name in arguments.models.split(",") if name in catalogue()]
    names = chosen_of(arguments.models, "--models", (*MODELS, *known))
    scores: Dict[str, float] = {}
    tokens = 0
    print("| model | L | tokens/s | us per token | peak MiB |\n|---|---|---|---|---|")
    for name in names:
        seconds, before = 0.0, 0
        for length in sorted(numbers_of(arguments.lengths)):
            growth = (length / before) ** (1 if name in LINEAR else 2) if before else 0.0
            if seconds * growth > arguments.time_limit:
                print(f"| {name} | {length:,} | skipped: would take about {seconds * growth:.0f} s a run | | |")
                continue
            found = measuring.run_once(f"{name}:{length}", arguments, alone=True)
            seconds, before, tokens = found["seconds"], length, tokens + length
            scores.update({f"{name} L={length} {key}": value for key, value in found.items()})
            title = f"{name}, chunk {arguments.chunk}" if name in LINEAR else name
            rate = f"{length / seconds:,.0f} | {1e6 * seconds / length:.1f}"
            print(f"| {title} | {length:,} | {rate} | {found['memory_mib']:.0f} |", flush=True)
    if set(names).isdisjoint(MODELS):  # recipes have their own sizes
        for option in SIZES:
            delattr(arguments, option)
    measuring.write_measurements(arguments, scores, examples=tokens)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
