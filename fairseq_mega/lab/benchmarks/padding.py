"""Padding of batches of texts: its cost, and the gain of layouts without it."""

import argparse
import sys
from pathlib import Path
from typing import Any, Dict, List

import numpy as np
import torch
import torch.nn.functional as F
from fairseq.data import data_utils
from torch import Tensor

from fairseq_mega.compat.features.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import apart, measuring
from fairseq_mega.lab.benchmarks.lra_speed import SYMBOLS, architecture, build
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, chosen_of

DESCRIPTION = """\
Training of classifiers on texts of unequal lengths: batches padded (--pad-batches) and packed in one row.

The forward and backward pass of mega_lra_imdb, with full attention and in chunks, and of transformer_lra_imdb on the
same batches of random symbols. Peak memory is counted on top of the model. The lengths come from a data folder of
--task lra-text, or are drawn like the lengths of IMDb's reviews: log-normal, with the mean and deviation (0.655) of the
logarithms of its 25,000 training texts, a median of 1,061 bytes. Padded and packed runs take turns.
"""
MODELS = ("mega-chunk", "mega", "transformer")
LAYOUTS = ("padded", "packed")
MEAN, DEVIATION = 6.967, 0.655  # of the logarithms of the lengths of IMDb's training texts in bytes
PAD = 1
SMOKE = ("--longest=1500", "--batch=3", "--batches=1", "--repeat=1", "--models=mega-chunk")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``padding``."""
    add = parser.add_argument
    add(
        "--data",
        type=Path,
        metavar="FOLDER",
        help="data folder with the lengths of training texts (default: drawn as IMDb's)",
    )
    add("--longest", type=int, default=4000, help="maximum tokens of a text (default: %(default)s)")
    add("--batch", type=int, default=25, help="texts of a batch (default: %(default)s, as in the recipe of Text)")
    add("--batches", type=int, default=4, help="batches of a timed run (default: %(default)s)")
    add("--chunk", type=int, default=128, help="attention chunk of mega-chunk (default: %(default)s)")
    add("--seed", type=int, default=1, help="seed of the lengths and the symbols (default: %(default)s)")
    add("--models", default=",".join(MODELS), help=f"models, comma separated, of: {', '.join(MODELS)} (default: all)")
    add_common_options(parser, repeat=3)


def draw_lengths(arguments: argparse.Namespace) -> np.ndarray:
    """Return lengths (batches, batch) of texts.

    Raises:
        ValueError: if the data folder has too few training texts, or none.
    """
    count, generator = arguments.batch * arguments.batches, np.random.default_rng(arguments.seed)
    if arguments.data is None:
        drawn = generator.lognormal(MEAN, DEVIATION, count)
    else:
        path = arguments.data / "src-bin" / "train"
        texts = data_utils.load_indexed_dataset(str(path), None)
        if texts is None or len(texts) < count:
            found = 0 if texts is None else len(texts)
            raise ValueError(
                f"--data {arguments.data}: {path} contains {found} texts, at least {count} are "
                "required: give more data or fewer --batches"
            )
        drawn = generator.permutation(np.asarray(texts.sizes))[:count]
    lengths: np.ndarray = np.clip(drawn, 1, arguments.longest).astype(int).reshape(arguments.batches, -1)
    return lengths


def batches_of(lengths: np.ndarray, seed: int) -> List[Tensor]:
    """Return random symbols of these lengths, padded on the right, (B, L) for each batch."""
    generator = torch.Generator().manual_seed(seed)
    batches = []
    for batch in lengths:
        tokens = torch.randint(4, SYMBOLS, (len(batch), int(batch.max())), generator=generator)
        batches.append(tokens.masked_fill(torch.arange(tokens.size(1)) >= torch.from_numpy(batch).unsqueeze(1), PAD))
    return batches


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure seconds and memory of the passes over all batches for a MODEL/LAYOUT, for instance ``mega/packed``."""
    name, layout = part.split("/")
    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    torch.manual_seed(0)
    options: Dict[str, Any] = {"pad_batches": layout == "padded"}
    model = build(name, arguments.longest, arguments.chunk, **options).to(arguments.device).train()
    batches = [tokens.to(arguments.device) for tokens in batches_of(draw_lengths(arguments), arguments.seed)]

    def update(tokens: Tensor) -> None:
        F.cross_entropy(model(tokens), torch.zeros(len(tokens), dtype=torch.long, device=tokens.device)).backward()

    update(batches[0][:, :32])  # excludes the one-time work of torch

    def work() -> None:
        for tokens in batches:
            update(tokens)

    return measuring.time_and_memory(work, arguments.repeat, torch.device(arguments.device))


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model, and write the result file."""
    names = chosen_of(arguments.models, "--models", MODELS)
    lengths = draw_lengths(arguments)
    real = int(lengths.sum())
    padded = int(lengths.max(axis=1).sum()) * arguments.batch
    scores: Dict[str, float] = {"texts share": real / padded}
    print(f"{lengths.size} texts in batches of {arguments.batch}: {real / padded:.1%} of {padded:,} tokens are text")
    print("| model | s padded | s packed | ratio | peak MiB padded | packed | ratio |")
    print("|---|---|---|---|---|---|---|")
    for name in names:
        found: Dict[str, Dict[str, float]] = {}
        for layout in (*LAYOUTS, *LAYOUTS):
            print(f"measuring {name}, {layout}", file=sys.stderr)
            row = apart.run_apart(f"{name}/{layout}", arguments, f"{name}, {layout}")
            found[layout] = measuring.keep_the_faster(found[layout], row) if layout in found else row
        before, after = (found[layout] for layout in LAYOUTS)
        speed, memory = (after[key] / before[key] for key in ("seconds", "memory_mib"))
        scores.update({f"{name} {layout} {key}": value for layout in LAYOUTS for key, value in found[layout].items()})
        scores.update({f"{name} seconds ratio": speed, f"{name} memory ratio": memory})
        times = f"{before['seconds']:.2f} | {after['seconds']:.2f} | {speed:.2f}"
        print(f"| {name} | {times} | {before['memory_mib']:.0f} | {after['memory_mib']:.0f} | {memory:.2f} |")
    arguments.architectures = {name: architecture(name) for name in names}
    measuring.write_measurements(arguments, scores, examples=lengths.size * arguments.repeat * len(names))


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
