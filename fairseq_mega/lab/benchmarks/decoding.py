"""Speed of decoding at several positions of a text."""

import argparse
import statistics
import time
from functools import partial
from typing import Any, Dict, List

import torch
from fairseq.modules import MultiheadAttention

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_numbers, chosen_of, numbers_of
from fairseq_mega.models.decoding_graph import GraphStream
from fairseq_mega.ops.decoding.time_buffer import TimeBuffer

DESCRIPTION = """\
Both models have the same number of parameters and random weights. MEGA reads a text up to a position in one call. The
Transformer gets random keys and values instead, because the time does not depend on their values. Both models decode
token by token, greedily, and the median time per step is reported; parameters are those of the layers.

--models all --width 512 measures float32, bfloat16 and int8 matrices of MEGA and MEGALODON, and the Transformer. On a
GPU MEGA and MEGALODON decode by a CUDA graph, and mega-eager and megalodon-eager without one.
"""
EAGER = {f"{name}-eager": name for name in ("mega", "megalodon")}  # on a GPU without a graph
ALL = ("mega", "mega-bf16", "mega-int8", "megalodon", "megalodon-bf16", "megalodon-int8", "transformer")
SMOKE = ("--positions=10,90", "--width=32", "--layers=1", "--chunk=16", "--symbols=50", "--tokens=3")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``decoding``."""
    add = parser.add_argument
    add("--positions", default="100,1000,10000", help="positions, comma separated, from 0 (default: %(default)s)")
    others = ", ".join((*models.OTHERS, *EAGER))
    help_text = f"models, comma separated, also {others}; all: the models in chunks (default: %(default)s)"
    add("--models", default=",".join(models.MODELS), help=help_text)
    add_numbers(parser, width=256, layers=6, chunk=256, symbols=10000, batch=1)
    add("--tokens", type=int, default=30, help="tokens decoded at each position (default: %(default)s)")
    add_common_options(parser, sweeps=1)


class IncrementalDecoder:
    """Decoder with fairseq's incremental state, as in its generators."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.memory: Dict[str, Any] = {}

    def read(self, tokens: Any) -> None:
        """Fill an empty memory as if ``tokens`` (B, t) had been read."""
        attentions = [part for part in self.model.decoder.modules() if isinstance(part, MultiheadAttention)]
        if not attentions:
            self.model.decoder(tokens, incremental_state=self.memory, features_only=True)
        for attention in attentions:
            shape = (tokens.size(0), attention.num_heads, tokens.size(1), attention.head_dim)
            names = ("prev_key", "prev_value")
            memory: Dict[str, Any] = {name: torch.randn(shape, device=tokens.device) for name in names}
            attention._set_input_buffer(self.memory, {**memory, "prev_key_padding_mask": None})

    def step(self, tokens: Any) -> Any:
        """Return the logits (B, V) after ``tokens`` (B, t); earlier tokens are in the memory."""
        return self.model.decoder(tokens, incremental_state=self.memory)[0][:, -1]

    def bytes(self) -> int:
        """Return the size of the memory."""
        return _bytes(self.memory)


def _bytes(item: Any) -> int:
    if isinstance(item, torch.Tensor):
        return item.numel() * item.element_size()
    if isinstance(item, TimeBuffer):
        return item.bytes()
    if isinstance(item, GraphStream):
        item = item.graph.tensors
    if isinstance(item, dict):
        item = list(item.values())
    return sum(map(_bytes, item)) if isinstance(item, (list, tuple)) else 0


def measure(arguments: argparse.Namespace, model: str, position: int) -> measuring.Figures:
    """Measure the median seconds per step after a number of tokens, and the bytes of state."""
    configure_process()  # as fairseq-mega-generate does
    longest = max(numbers_of(arguments.positions)) + arguments.tokens + 3
    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, arguments.chunk, arguments.symbols, longest)
    built = models.build(EAGER.get(model, model), *sizes).to(arguments.device).eval()
    built.decoder.use_graphs = model not in EAGER
    tokens = torch.full((arguments.batch, longest), 4, device=arguments.device)
    decoder, seconds = IncrementalDecoder(built), []
    with torch.no_grad():
        if position > 0:
            decoder.read(tokens[:, :position])
        for length in range(position + 1, position + arguments.tokens + 2):
            start = time.perf_counter()
            tokens[:, length] = decoder.step(tokens[:, :length]).argmax(dim=-1)
            if arguments.device == "cuda":
                torch.cuda.synchronize()
            seconds.append(time.perf_counter() - start)
    median = statistics.median(seconds[1:])
    return {"seconds": median, "bytes": decoder.bytes(), "parameters": models.layer_parameters(built)}


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each model and position, compared with the Transformer."""
    given = ",".join(ALL) if arguments.models == "all" else arguments.models
    return [
        measuring.Case(
            f"{name} position={position}",
            {"model": name, "position": position},
            items=arguments.batch,
            against=f"transformer position={position}",
        )
        for name in chosen_of(given, "--models", (*models.MODELS, *models.OTHERS, *EAGER))
        for position in numbers_of(arguments.positions)
    ]


BENCHMARK = Benchmark(DESCRIPTION, add_options, partial(measuring.run, cases_of=cases), measure, SMOKE)
