"""Training speed and peak memory of language models over the length of their blocks."""

import argparse
from functools import partial
from typing import Any, List

import torch
import torch.nn.functional as F

from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_numbers, chosen_of, numbers_of
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
    add_numbers(parser, width=128, layers=4, chunk=128, symbols=256)
    add("--time-limit", type=float, default=60.0, help="maximum seconds of one run (default: %(default)s)")
    add_common_options(parser, repeat=3, sweeps=1, dtypes=["float32", "bfloat16"])


def measure(arguments: argparse.Namespace, model: str, length: int) -> measuring.Figures:
    """Measure seconds and memory of a forward and backward pass over a block, and count the parameters."""
    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, arguments.chunk, arguments.symbols, length)
    if model in MODELS:
        built = models.build(model, *sizes)
    else:
        built = models.build_recipe(model, arguments.symbols, length, arguments.smoke)
    built = built.to(arguments.device, getattr(torch, arguments.dtype))

    def loss_of(tokens: Any) -> Any:
        logits = built(tokens[:, :-1])[0].float()
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    tokens = torch.randint(4, arguments.symbols, (1, length + 1), device=arguments.device)
    return models.measure_training(built, loss_of, tokens, 33, arguments)


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each model and length."""
    known = [name for name in arguments.models.split(",") if name in catalogue()]
    return [
        measuring.Case(
            f"{name} L={length}",
            {"model": name, "length": length},
            items=length,
            series=name,
            length=length,
            power=1 if name in LINEAR else 2,
        )
        for name in chosen_of(arguments.models, "--models", (*MODELS, *known))
        for length in sorted(numbers_of(arguments.lengths))
    ]


def finish(arguments: argparse.Namespace, cases: List[measuring.Case], _: Any) -> measuring.Figures:
    """Record the options of sizes unless all models are recipes, which have their own sizes."""
    if {case.series for case in cases}.isdisjoint(MODELS):
        for option in SIZES:
            delattr(arguments, option)
    return {}


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases, finish=finish), measure, SMOKE)
