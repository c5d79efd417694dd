"""Speed of decoding at several positions of a text."""

import argparse
import statistics
import time
from typing import Any, Dict, List

import torch
from fairseq.modules import MultiheadAttention
from torch import nn

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_size_options, chosen_of, numbers_of
from fairseq_mega.ops.decoding.time_buffer import TimeBuffer

DESCRIPTION = """\
Both models have the same number of parameters and random weights. MEGA reads a text up to a position in one call. The
Transformer gets random keys and values instead, because the time does not depend on their values. Both models decode
token by token, greedily, and the median time per step is reported. With --beam, each step first reorders the memory of
the hypotheses, as beam search does.

The limit of a time is the bytes of weights and state that a step reads, divided by the read bandwidth, which the same
process measures with the same number of threads. The share is the part of this bandwidth that a step reaches. Data that
stay in the caches between steps may be read faster.

--models all --width 512 measures float32, bfloat16 and int8 matrices of MEGA and MEGALODON, and the Transformer.
"""
COLUMNS = (
    "| model | parameters of the layers | position | ms per step | limit, ms | share | tokens/s "
    "| against the Transformer | state, KiB |"
)
ALL = ("mega", "mega-bf16", "mega-int8", "megalodon", "megalodon-bf16", "megalodon-int8", "transformer")
SMOKE = ("--positions=10,90", "--width=32", "--layers=1", "--chunk=16", "--symbols=50", "--tokens=3")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``decoding``."""
    add = parser.add_argument
    add("--positions", default="100,1000,10000", help="positions, comma separated, from 0 (default: %(default)s)")
    others = ", ".join(models.OTHERS)
    help_text = f"models, comma separated, also {others}; all: the models in chunks (default: %(default)s)"
    add("--models", default=",".join(models.MODELS), help=help_text)
    add_size_options(parser, width=256, layers=6, chunk=256, symbols=10000)
    add("--batch", type=int, default=1, help="texts in a batch (default: %(default)s)")
    add(
        "--beam",
        type=int,
        default=1,
        help="hypotheses of each text, reordered at each step (default: 1, no reordering)",
    )
    add("--tokens", type=int, default=30, help="tokens decoded at each position (default: %(default)s)")
    add_common_options(parser)


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

    def reorder(self, order: Any) -> None:
        """Continue with the hypotheses ``order`` (B,)."""
        self.model.decoder.reorder_incremental_state_scripting(self.memory, order)

    def bytes(self) -> int:
        """Return the size of the memory."""
        return _bytes(self.memory)

    def bytes_of_step(self) -> int:
        """Return the bytes that a step reads: the memory and the weights, of embedding tables the output's alone."""
        decoder = self.model.decoder
        parts = [part for part in decoder.modules() if not isinstance(part, nn.Embedding)]
        tensors = [x for part in parts for x in (*part._parameters.values(), *part._buffers.values()) if x is not None]
        if getattr(decoder, "shared_output", False) and decoder.packed_output is None:
            tensors.append(decoder.output_matrix)
        weights = {x.data_ptr(): x for x in tensors}
        return _bytes(list(weights.values())) + _bytes(self.memory, with_room=False)


def _bytes(item: Any, with_room: bool = True) -> int:
    if isinstance(item, torch.Tensor):
        return item.numel() * item.element_size()
    if isinstance(item, TimeBuffer):
        return item.bytes() if with_room else _bytes(item.steps)
    if isinstance(item, dict):
        item = list(item.values())
    return sum(_bytes(part, with_room) for part in item) if isinstance(item, (list, tuple)) else 0


def drawn_order(texts: int, beam: int, device: str) -> Any:
    """Draw the hypotheses of each text that a step of beam search continues: (texts * beam,) long."""
    first = beam * torch.arange(texts, device=device).unsqueeze(1)
    return (first + torch.randint(beam, (texts, beam), device=device)).flatten()


def measure(name: str, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Measure the median seconds per step, their limit and the bytes of state of a model at every position."""
    configure_process()  # as fairseq-mega-generate does
    torch.set_num_threads(arguments.threads)
    positions = numbers_of(arguments.positions)
    longest = max(positions) + arguments.tokens + 3
    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, arguments.chunk, arguments.symbols, longest)
    model = models.build(name, *sizes).to(arguments.device).eval()
    bandwidth = measuring.reading_bandwidth(torch.device(arguments.device))
    found = []
    with torch.no_grad():
        for position in positions:
            tokens = torch.full((arguments.batch * arguments.beam, longest), 4, device=arguments.device)
            decoder, seconds = IncrementalDecoder(model), []
            if position > 0:
                decoder.read(tokens[:, :position])
            for length in range(position + 1, position + arguments.tokens + 2):
                order = drawn_order(arguments.batch, arguments.beam, arguments.device)
                start = time.perf_counter()
                if arguments.beam > 1:
                    decoder.reorder(order)
                tokens[:, length] = decoder.step(tokens[:, :length]).argmax(dim=-1)
                if arguments.device == "cuda":
                    torch.cuda.synchronize()
                seconds.append(time.perf_counter() - start)
            median, limit = statistics.median(seconds[1:]), decoder.bytes_of_step() / bandwidth
            found.append({"position": position, "seconds": median, "limit": limit, "bytes": decoder.bytes()})
    return {"rows": [{**row, "parameters": models.layer_parameters(model)} for row in found]}


def table(measured: Dict[str, List[Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """Return the measurements as a Markdown table."""
    lines = [COLUMNS, "|---" * COLUMNS[1:].count("|") + "|"]
    base = {row["position"]: row["seconds"] for row in measured.get("transformer", [])}
    for name, rows in measured.items():
        title = f"mega, chunk {arguments.chunk}" if name == "mega" else name
        for row in rows:
            ratio = f"{base[row['position']] / row['seconds']:.2f}x" if base else "-"
            lines.append(
                f"| {title} | {row['parameters']:,} | {row['position']:,} | {1e3 * row['seconds']:.2f} "
                f"| {1e3 * row['limit']:.2f} | {row['limit'] / row['seconds']:.0%} "
                f"| {arguments.batch / row['seconds']:,.0f} | {ratio} | {row['bytes'] / 1024:,.0f} |"
            )
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and position, and write the result file."""
    given = ",".join(ALL) if arguments.models == "all" else arguments.models
    measured: Dict[str, Any] = {}
    for name in chosen_of(given, "--models", (*models.MODELS, *models.OTHERS)):
        measured[name] = measuring.run_once(name, arguments, alone=True)["rows"]
    print(table(measured, arguments))
    scores = {
        f"{name} position={row['position']} {key}": row[key]
        for name, rows in measured.items()
        for row in rows
        for key in ("seconds", "limit", "bytes", "parameters")
    }
    measuring.write_measurements(arguments, scores, examples=arguments.tokens * sum(map(len, measured.values())))


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
