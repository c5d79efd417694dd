#!/usr/bin/env python3
"""Speed and memory columns of MEGA's Table 2: training on the Text task of the Long Range Arena with 4K input.

The forward and backward pass of mega_lra_imdb, with full attention and in chunks, and of transformer_lra_imdb on the
same random texts; speed in examples per second and peak memory on top of the model, both relative to the Transformer
with its attention weights written out (transformer-explicit), as was usual when the table was made. The row transformer
is the same model with torch's fused attention. Run it on an otherwise idle machine.
"""

import argparse
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("transformer-explicit", "transformer", "mega", "mega-chunk")
PAPER = {"transformer-explicit": "1x, 1x", "mega": "2.9x, 0.31x", "mega-chunk": "5.5x, 0.13x"}
SYMBOLS = 256  # bytes


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--length", type=int, default=4096, help="tokens of a text (default: 4096)")
    add("--batch", type=int, default=2, help="texts per update (default: 2; the recipe has 25)")
    add("--chunk", type=int, default=128, help="of mega-chunk (default: 128)")
    add("--models", default=",".join(MODELS), help=f"of: {', '.join(MODELS)} (default: all)")
    add("--repeat", type=int, default=3, help="timed runs; the median is reported (default: 3)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default: cpu)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--measure", choices=MODELS, help=argparse.SUPPRESS)
    add("--smoke", action="store_true", help="short texts, to see that it works")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.length, arguments.batch, arguments.chunk, arguments.repeat = 64, 1, 16, 1
    return arguments


def build(name: str, length: int, chunk: int) -> Any:
    """The model of the Text recipe, with the full width and depth."""
    from fairseq.data import Dictionary
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

    dictionary, labels = Dictionary(), Dictionary()
    for number in range(SYMBOLS):
        dictionary.add_symbol(str(number))
    task = SimpleNamespace(input_type="text", documents=1, dictionary=dictionary, label_dictionary=labels)
    arch = "mega_lra_imdb" if name.startswith("mega") else "transformer_lra_imdb"
    options = argparse.Namespace(max_positions=length, dropout=0.1)
    if name == "mega-chunk":
        options.encoder_chunk_size = chunk
    ARCH_CONFIG_REGISTRY[arch](options)
    return ARCH_MODEL_REGISTRY[arch].build_model(options, task)


def measure(name: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Seconds and memory of a forward and backward pass; runs in a process of its own."""
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    import fairseq_mega  # noqa: F401  registers the models
    from fairseq_mega.benchmarks.measure import time_and_memory
    from fairseq_mega.compat.allocator import keep_freed_memory

    keep_freed_memory()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    model = build(name, arguments.length, arguments.chunk).to(arguments.device).train()

    def update(tokens: Any) -> None:
        target = torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)
        if name == "transformer-explicit":
            with sdpa_kernel(SDPBackend.MATH):
                F.cross_entropy(model(tokens), target).backward()
        else:
            F.cross_entropy(model(tokens), target).backward()

    tokens = torch.randint(4, SYMBOLS, (arguments.batch, arguments.length), device=arguments.device)
    update(tokens[:, :32])  # what torch loads and sets up once is not charged to the text
    found = time_and_memory(lambda: update(tokens), arguments.repeat, torch.device(arguments.device))
    return {**found, "parameters": sum(parameter.numel() for parameter in model.parameters())}


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(ROOT))
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments)))
        return
    from fairseq_mega.benchmarks.measure import run_apart, write_measurements

    names = arguments.models.split(",")
    if not set(names) <= set(MODELS):
        raise SystemExit(f"--models {arguments.models}: choose from {', '.join(MODELS)}")
    found: Dict[str, Dict[str, float]] = {}
    for name in names:
        print(f"measuring {name}", file=sys.stderr)
        found[name] = run_apart(name, arguments, name)
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
    write_measurements(arguments, "lra-speed", scores, examples=arguments.batch * arguments.repeat * len(names))


if __name__ == "__main__":
    main()
