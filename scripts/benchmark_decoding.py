#!/usr/bin/env python3
"""Speed of decoding at several positions of a text: MEGA's language model beside fairseq's transformer_lm.

Both have equally many parameters and random weights. MEGA reads a text up to a position in one call; the Transformer,
which fairseq would feed token by token, gets random keys and values for it, as the time does not depend on them. Then
both decode token by token, greedily, and the median time per step is reported; with --beam, each step first reorders
the memory of the hypotheses, as beam search does. First it is checked that decoding step by step gives the logits of
one call over the whole text; nothing is measured if it does not. Run it on an otherwise idle machine.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent
COLUMNS = (
    "| model | parameters of the layers | position | ms per step | tokens/s | against the Transformer | state, KiB |"
)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--positions", default="100,1000,10000", help="comma separated, 0 the start (default: 100,1000,10000)")
    add("--models", default="mega,mega-full,transformer", help="of: mega, mega-full, transformer (default: all)")
    add("--width", type=int, default=256, help="d (default: 256)")
    add("--layers", type=int, default=6, help="(default: 6)")
    add("--chunk", default="256", help="MEGA's chunk, or several, comma separated (default: 256)")
    add("--symbols", type=int, default=10000, help="of the dictionary (default: 10000)")
    add("--batch", type=int, default=1, help="texts side by side (default: 1)")
    add("--beam", type=int, default=1, help="hypotheses of each text, reordered at each step (default: 1, none)")
    add("--tokens", type=int, default=30, help="tokens decoded at each position (default: 30)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default: cpu)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--measure", help=argparse.SUPPRESS)
    add("--smoke", action="store_true", help="tiny models at short positions, to see that it works")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.positions, arguments.width, arguments.layers = "10,90", 32, 1
        arguments.chunk = "16" if arguments.chunk == parser.get_default("chunk") else arguments.chunk
        arguments.symbols, arguments.tokens = 50, 3
    return arguments


class Decoder:
    """Decodes with fairseq's incremental state, as its generators do."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.memory: Dict[str, Any] = {}

    def read(self, tokens: Any) -> None:
        """Fill an empty memory as if ``tokens`` (B, t) had been read."""
        import torch
        from fairseq.modules import MultiheadAttention

        attentions = [part for part in self.model.decoder.modules() if isinstance(part, MultiheadAttention)]
        if not attentions:
            self.step(tokens)
        for attention in attentions:
            shape = (tokens.size(0), attention.num_heads, tokens.size(1), attention.head_dim)
            names = ("prev_key", "prev_value")
            memory: Dict[str, Any] = {name: torch.randn(shape, device=tokens.device) for name in names}
            attention._set_input_buffer(self.memory, {**memory, "prev_key_padding_mask": None})

    def step(self, tokens: Any) -> Any:
        """Logits (B, V) after ``tokens`` (B, t), of which all but those not seen before are remembered."""
        return self.model.decoder(tokens, incremental_state=self.memory)[0][:, -1]

    def reorder(self, order: Any) -> None:
        """Go on with the hypotheses ``order`` (B,)."""
        self.model.decoder.reorder_incremental_state_scripting(self.memory, order)

    def bytes(self) -> int:
        """Size of what is remembered."""
        return _bytes(self.memory)


def _bytes(item: Any) -> int:
    import torch

    from fairseq_mega.modules.time_buffer import TimeBuffer

    if isinstance(item, torch.Tensor):
        return item.numel() * item.element_size()
    if isinstance(item, TimeBuffer):
        return item.bytes()
    if isinstance(item, dict):
        return sum(map(_bytes, item.values()))
    return sum(map(_bytes, item)) if isinstance(item, (list, tuple)) else 0


def drawn_order(texts: int, beam: int, device: str) -> Any:
    """Which hypotheses of each text a step of beam search goes on with: (texts * beam,) long."""
    import torch

    first = beam * torch.arange(texts, device=device).unsqueeze(1)
    return (first + torch.randint(beam, (texts, beam), device=device)).flatten()


def build(name: str, chunk: int, arguments: argparse.Namespace, longest: int) -> Any:
    import torch

    from fairseq_mega.benchmarks import lm_pair

    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, chunk, arguments.symbols, longest)
    return lm_pair.build(name, *sizes).to(arguments.device).eval()


def check(name: str, chunk: int, arguments: argparse.Namespace) -> None:
    """Compare decoding in steps with one call."""
    import torch

    length = min(2 * chunk + 5, 300)
    model = build(name, chunk, arguments, length)
    tokens = torch.randint(4, arguments.symbols, (2 * arguments.beam, length), device=arguments.device)
    rows = torch.arange(tokens.size(0), device=arguments.device)
    with torch.no_grad():
        whole = model(tokens)[0]
        decoder = Decoder(model)
        for end in range(1, length + 1):
            if arguments.beam > 1 and end > 1:
                order = drawn_order(2, arguments.beam, arguments.device)
                decoder.reorder(order)
                rows = rows[order]
            difference = (decoder.step(tokens[rows, :end]) - whole[rows, end - 1]).abs().max()
            assert difference < 1e-4 * whole.abs().max(), f"{name}: step {end} differs by {difference:.2g}"


def measure(name: str, chunk: int, arguments: argparse.Namespace) -> List[Dict[str, float]]:
    """Median seconds per step and bytes of state at every position; runs in a process of its own."""
    import torch

    from fairseq_mega.benchmarks.lm_pair import layer_parameters
    from fairseq_mega.compat.allocator import keep_freed_memory

    keep_freed_memory()  # as fairseq-mega-generate does
    torch.set_num_threads(arguments.threads)
    positions = [int(position) for position in arguments.positions.split(",")]
    longest = max(positions) + arguments.tokens + 3
    model = build(name, chunk, arguments, longest)
    found = []
    with torch.no_grad():
        for position in positions:
            tokens = torch.full((arguments.batch * arguments.beam, longest), 4, device=arguments.device)
            decoder, seconds = Decoder(model), []
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
            found.append({"position": position, "seconds": statistics.median(seconds[1:]), "bytes": decoder.bytes()})
    return [{**row, "parameters": layer_parameters(model)} for row in found]


def table(measured: Dict[str, List[Dict[str, float]]], arguments: argparse.Namespace) -> str:
    """The measurements as a Markdown table."""
    lines = [COLUMNS, "|---|---|---|---|---|---|---|"]
    base = {row["position"]: row["seconds"] for row in measured.get("transformer", [])}
    for name, rows in measured.items():
        for row in rows:
            ratio = f"{base[row['position']] / row['seconds']:.2f}x" if base else "-"
            lines.append(
                f"| {name} | {row['parameters']:,} | {row['position']:,} | {1e3 * row['seconds']:.2f} "
                f"| {arguments.batch / row['seconds']:,.0f} | {ratio} | {row['bytes'] / 1024:,.0f} |"
            )
    return "\n".join(lines)


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(ROOT))
    if arguments.measure:
        name, chunk = arguments.measure.split(":")
        print(json.dumps({"rows": measure(name, int(chunk), arguments)}))
        return
    from fairseq_mega.benchmarks.lm_pair import MODELS
    from fairseq_mega.benchmarks.measure import run_apart, write_measurements

    names = arguments.models.split(",")
    if not set(names) <= set(MODELS):
        raise SystemExit(f"--models {arguments.models}: choose from {', '.join(MODELS)}")
    variants = models_of(names, arguments.chunk)
    for part in variants.values():
        check(*part, arguments)
    print("decoding in steps agrees with one call for every model", file=sys.stderr)
    measured: Dict[str, Any] = {}
    for title, (name, chunk) in variants.items():
        print(f"measuring {title}", file=sys.stderr)
        measured[title] = run_apart(f"{name}:{chunk}", arguments, title)["rows"]
    print(table(measured, arguments))
    labels = {title: name if "," not in arguments.chunk else title for title, (name, _) in variants.items()}
    rows = [(labels[title], row) for title in measured for row in measured[title]]
    scores = {
        f"{label} position={row['position']} {key}": row[key]
        for label, row in rows
        for key in ("seconds", "bytes", "parameters")
    }
    write_measurements(arguments, "decoding", scores, examples=arguments.tokens * len(rows))


def models_of(names: List[str], chunks: str) -> Dict[str, Tuple[str, int]]:
    """Title, name and chunk of the models to measure: MEGA with each of its chunks."""
    sizes = [int(chunk) for chunk in chunks.split(",")]
    found = {}
    for name in names:
        for chunk in sizes if name == "mega" else sizes[:1]:
            found[f"mega, chunk {chunk}" if name == "mega" else name] = name, chunk
    return found


if __name__ == "__main__":
    main()
