#!/usr/bin/env python3
"""Training speed and peak memory of language models over the length of their blocks: MEGA in chunks, and others.

One update's forward and backward pass over one block, tokens per second and peak memory on top of the model. MEGA in
chunks should take the same time per token from 4,096 on. What would take longer than --time-limit is left out. Run it
on an otherwise idle machine.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict

ROOT = Path(__file__).resolve().parent.parent


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--lengths", default="1024,4096,16384,65536", help="comma separated (default: 1024,4096,16384,65536)")
    add("--models", default="mega,transformer", help="of: mega, mega-full, transformer (default: mega,transformer)")
    add("--width", type=int, default=128, help="d (default: 128)")
    add("--layers", type=int, default=4, help="(default: 4)")
    add("--chunk", type=int, default=128, help="MEGA's chunk (default: 128)")
    add("--symbols", type=int, default=256, help="of the dictionary (default: 256)")
    add("--repeat", type=int, default=3, help="timed runs; the median is reported (default: 3)")
    add("--threads", type=int, default=1, help="CPU threads (default: 1)")
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where to measure (default: cpu)")
    add("--time-limit", type=float, default=60.0, help="seconds that one run may be expected to take (default: 60)")
    add("--json", type=Path, help="also write the measurements to this file")
    add("--measure", help=argparse.SUPPRESS)
    add("--smoke", action="store_true", help="tiny models and blocks, to see that it works")
    arguments = parser.parse_args()
    if arguments.smoke:
        arguments.lengths, arguments.width, arguments.layers, arguments.chunk = "32,64", 32, 1, 16
        arguments.repeat = 1
    return arguments


def measure(name: str, length: int, arguments: argparse.Namespace) -> Dict[str, float]:
    """Seconds and memory of a forward and backward pass; runs in a process of its own."""
    import torch
    import torch.nn.functional as F

    from fairseq_mega.benchmarks import lm_pair
    from fairseq_mega.benchmarks.measure import time_and_memory
    from fairseq_mega.compat.allocator import keep_freed_memory

    keep_freed_memory()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    sizes = (arguments.width, arguments.layers, arguments.chunk, arguments.symbols, length)
    model = lm_pair.build(name, *sizes).to(arguments.device).train()

    def update(tokens: Any) -> None:
        logits = model(tokens[:, :-1])[0].float()
        F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).backward()

    tokens = torch.randint(4, arguments.symbols, (1, length + 1), device=arguments.device)
    update(tokens[:, :33])  # what torch loads and sets up once is not charged to the block
    return time_and_memory(lambda: update(tokens), arguments.repeat, torch.device(arguments.device))


def main() -> None:
    arguments = parse_arguments()
    sys.path.insert(0, str(ROOT))
    if arguments.measure:
        name, length = arguments.measure.split(":")
        print(json.dumps(measure(name, int(length), arguments)))
        return
    from fairseq_mega.benchmarks.lm_pair import MODELS
    from fairseq_mega.benchmarks.measure import run_apart, write_measurements

    names = arguments.models.split(",")
    if not set(names) <= set(MODELS):
        raise SystemExit(f"--models {arguments.models}: choose from {', '.join(MODELS)}")
    scores: Dict[str, float] = {}
    tokens = 0
    print("| model | L | tokens/s | us per token | peak MiB |\n|---|---|---|---|---|")
    for name in names:
        seconds, before = 0.0, 0
        for length in sorted(int(length) for length in arguments.lengths.split(",")):
            growth = (length / before) ** (1 if name == "mega" else 2) if before else 0.0
            if seconds * growth > arguments.time_limit:
                print(f"| {name} | {length:,} | left out: would take about {seconds * growth:.0f} s a run | | |")
                continue
            found = run_apart(f"{name}:{length}", arguments, f"{name} at L = {length}")
            seconds, before, tokens = found["seconds"], length, tokens + length
            scores.update({f"{name} L={length} {key}": value for key, value in found.items()})
            title = f"{name}, chunk {arguments.chunk}" if name == "mega" else name
            rate = f"{length / seconds:,.0f} | {1e6 * seconds / length:.1f}"
            print(f"| {title} | {length:,} | {rate} | {found['memory_mib']:.0f} |", flush=True)
    write_measurements(arguments, "lm-length", scores, examples=tokens)


if __name__ == "__main__":
    main()
