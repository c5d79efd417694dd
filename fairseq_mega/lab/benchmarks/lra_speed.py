"""Speed and memory columns of MEGA's Table 2."""

import argparse
import contextlib
import os
from types import SimpleNamespace
from typing import Any, Dict

import torch
import torch.nn.functional as F
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from torch.nn.attention import SDPBackend, sdpa_kernel

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, chosen_of
from fairseq_mega.models.on_paper import stand_in
from fairseq_mega.ops.common.dispatch import VARIABLE

DESCRIPTION = """\
The forward and backward pass of mega_lra_imdb, with full attention and in chunks, and of transformer_lra_imdb on the
same random texts; speed in examples per second and peak memory on top of the model, both relative to the Transformer
with its attention weights written out (transformer-explicit), as was usual when the table was made. The row transformer
is the same model with fused attention: a kernel of this package on a CPU, one of torch on a GPU.
"""
MODELS = ("transformer-explicit", "transformer", "mega", "mega-chunk")
PAPER = {"transformer-explicit": "1x, 1x", "mega": "2.9x, 0.31x", "mega-chunk": "5.5x, 0.13x"}
VOCAB_SIZE = 256  # bytes
SMOKE = ("--length=64", "--batch=1", "--chunk=16", "--repeat=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lra-speed``."""
    add = parser.add_argument
    add("--length", type=int, default=4096, help="tokens of a text (default: %(default)s)")
    add("--batch", type=int, default=2, help="texts per update (default: %(default)s; the recipe has 25)")
    add("--chunk", type=int, default=128, help="attention chunk of mega-chunk (default: %(default)s)")
    add("--models", default=",".join(MODELS), help=f"models, comma separated, of: {', '.join(MODELS)} (default: all)")
    add_common_options(parser, repeat=3)


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


def measure(name: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure seconds and memory of a forward and backward pass of a model."""
    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    if name == "transformer-explicit":
        os.environ[VARIABLE] = "attention=torch"  # of this process alone, see measuring
    model = build(name, arguments.length, arguments.chunk).to(arguments.device).train()

    def loss_of(tokens: Any) -> Any:
        return F.cross_entropy(model(tokens), torch.zeros(len(tokens), dtype=torch.long, device=tokens.device))

    explicit = name == "transformer-explicit"
    tokens = torch.randint(4, VOCAB_SIZE, (arguments.batch, arguments.length), device=arguments.device)
    with sdpa_kernel(SDPBackend.MATH) if explicit else contextlib.nullcontext():
        return models.measure_training(model, loss_of, tokens, 32, arguments)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model, and write the result file."""
    names = chosen_of(arguments.models, "--models", MODELS)
    found: Dict[str, Dict[str, float]] = {}
    for name in names:
        found[name] = measuring.run_once(name, arguments, alone=True)
    base = found[names[0]]
    scores: Dict[str, float] = {}
    print(f"| model | parameters | examples/s | peak MiB | speed and memory against {names[0]} | MEGA, Table 2 |")
    print("|---|---|---|---|---|---|")
    for name, row in found.items():
        speed, memory = base["seconds"] / row["seconds"], row["memory_mib"] / base["memory_mib"]
        scores.update({f"{name} {key}": value for key, value in row.items()})
        scores.update({f"{name} speed": speed, f"{name} memory": memory})
        rate = f"{row['parameters']:,} | {arguments.batch / row['seconds']:.3f} | {row['memory_mib']:.0f}"
        print(f"| {name} | {rate} | {speed:.2f}x, {memory:.2f}x | {PAPER.get(name, '')} |")
    arguments.architectures = {name: architecture(name) for name in names}
    measuring.write_measurements(arguments, scores, examples=arguments.batch * arguments.repeat * len(names))


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
