"""Speed and memory columns of MEGA's Table 2."""

import argparse
import os
from contextlib import ExitStack
from functools import partial
from types import SimpleNamespace
from typing import Any, List
from unittest import mock

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_numbers, chosen_of
from fairseq_mega.models.on_paper import stand_in
from fairseq_mega.ops.common.dispatch import VARIABLE

DESCRIPTION = """\
The forward and backward pass of mega_lra_imdb, with full attention and in chunks, and of transformer_lra_imdb on the
same random texts; speed in examples per second and peak memory on top of the model, both relative to the Transformer
with its attention weights written out (transformer-explicit), as was usual when the table was made. The row transformer
is the same model with fused attention: a kernel of this package on a CPU, one of torch on a GPU. The paper has 2.9x and
0.31x for mega, 5.5x and 0.13x for mega-chunk. The recipe has a batch of 25.
"""
MODELS = ("transformer-explicit", "transformer", "mega", "mega-chunk")
VOCAB_SIZE = 256  # bytes
SMOKE = ("--length=64", "--batch=1", "--chunk=16", "--repeat=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lra-speed``."""
    add = parser.add_argument
    add_numbers(parser, length=4096, batch=2, chunk=128)
    add("--models", default=",".join(MODELS), help=f"models, comma separated, of: {', '.join(MODELS)} (default: all)")
    add_common_options(parser, repeat=3, sweeps=1)


def architecture(name: str) -> str:
    """Return the architecture of a model of MODELS."""
    return "mega_lra_imdb" if name.startswith("mega") else "transformer_lra_imdb"


def build(name: str, length: int, chunk: int) -> Any:
    """Build the model of the Text recipe, with the full width and depth."""
    labels = Dictionary()
    dictionary = stand_in(labels.nspecial + VOCAB_SIZE)
    task = SimpleNamespace(input_type="text", documents=1, dictionary=dictionary, label_dictionary=labels)
    arch = architecture(name)
    options = argparse.Namespace(max_positions=length, dropout=0.1)
    if name == "mega-chunk":
        options.encoder_chunk_size = chunk
    ARCH_CONFIG_REGISTRY[arch](options)
    return ARCH_MODEL_REGISTRY[arch].build_model(options, task)


def measure(arguments: argparse.Namespace, model: str) -> measuring.Figures:
    """Measure seconds and memory of a forward and backward pass of a model."""
    torch.manual_seed(0)
    explicit = model == "transformer-explicit"
    with ExitStack() as stack:
        if explicit:
            stack.enter_context(mock.patch.dict(os.environ, {VARIABLE: "attention=torch"}))
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        built = build(model, arguments.length, arguments.chunk).to(arguments.device)

        def loss_of(tokens: Any) -> Any:
            return F.cross_entropy(built(tokens), torch.zeros(len(tokens), dtype=torch.long, device=tokens.device))

        tokens = torch.randint(4, VOCAB_SIZE, (arguments.batch, arguments.length), device=arguments.device)
        return models.measure_training(built, loss_of, tokens, 32, arguments)


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each model, compared with the first."""
    names = chosen_of(arguments.models, "--models", MODELS)
    return [measuring.Case(name, {"model": name}, items=arguments.batch, against=names[0]) for name in names]


def finish(arguments: argparse.Namespace, cases: List[measuring.Case], _: Any) -> measuring.Figures:
    """Record the architectures."""
    arguments.architectures = {case.subject: architecture(case.subject) for case in cases}
    return {}


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases, finish=finish), measure, SMOKE)
