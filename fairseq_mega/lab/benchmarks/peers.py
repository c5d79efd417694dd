"""Training speed and peak memory of MEGALODON compared with megalodon-jax."""

import argparse
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Dict, List

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_numbers

OURS, PEER = "megalodon", "megalodon-jax"
DESCRIPTION = """\
A forward and backward pass of MEGALODON in float32 over random tokens, ours and megalodon-jax's, which XLA compiles; on
a CPU, without an optimizer: megalodon-jax has none. Each model runs in a separate process, in the environment of its
package, once in each of the --sweeps. Peak memory is counted on top of the model and its compiled program. Parameters
differ by at most one percent. First, two steps down the gradients must lower the loss by as much as the gradients
predict. megalodon-jax is skipped if it is not installed. Its "speed" and "memory" are those of ours, relative to it.
"""
SMOKE = ("--shapes=2x32", "--layers=1", "--chunk=16", "--repeat=1", "--sweeps=1")
SIZES = ("width", "layers", "chunk", "symbols", "threads", "repeat")  # options that a model's process reads
WORKER = Path(__file__).with_name("peers_worker.py")
# glibc's settings, the same as in compat.processes.cpu_process.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``peers``."""
    add = parser.add_argument
    python = f"Python of the environment of {PEER} (default: this Python)"
    add("--python", metavar=f"{PEER}=PATH", help=python)
    keep = "make glibc keep freed memory in the peer, too, as fairseq-mega-train does"
    add("--keep-freed-memory", action="store_true", help=keep)
    add("--shapes", default="2x512,8x512,1x4096", help="batch x length, comma separated (default: %(default)s)")
    add_numbers(parser, width=384, layers=6, chunk=512, symbols=260)
    add_common_options(parser, repeat=3, sweeps=2)


def measure(arguments: argparse.Namespace, model: str, batch: int, length: int) -> measuring.Figures:
    """Return the answer of ``peers_worker.py``; ``skipped`` is the reason if a package of the model is missing.

    Raises:
        ValueError: if the process failed; its messages are on stderr.
    """
    python = arguments.python.partition("=")[2] if arguments.python and model == PEER else sys.executable
    sizes = {name: getattr(arguments, name) for name in SIZES}
    settings = {**sizes, "model": model, "batch": batch, "length": length}
    environment = {**os.environ, "OMP_NUM_THREADS": str(arguments.threads)}
    if arguments.keep_freed_memory and model == PEER:  # ours sets them itself
        environment.update(KEEP_FREED_MEMORY)
    given = [python, str(WORKER), json.dumps(settings)]
    done = subprocess.run(given, stdout=subprocess.PIPE, text=True, env=environment)
    if done.returncode:
        raise ValueError(f"{model} ended with exit status {done.returncode}")
    return dict(json.loads(done.stdout))


def cases(arguments: argparse.Namespace) -> List[measuring.Case]:
    """Return a case for each shape and model, the peer beside ours."""
    return [
        measuring.Case(
            f"{name}, batch {batch} L={length}",
            {"model": name, "batch": batch, "length": length},
            items=batch * length,
            against=f"{OURS}, batch {batch} L={length}" if name == PEER else "",
        )
        for batch, length in (map(int, shape.split("x")) for shape in arguments.shapes.split(","))
        for name in (OURS, PEER)
    ]


def finish(
    arguments: argparse.Namespace, cases: List[measuring.Case], found: Dict[str, measuring.Figures]
) -> measuring.Figures:
    """Return the versions and losses of the models; ``speed`` and ``memory`` become those of ours beside the peer.

    Raises:
        ValueError: if the peer has more or fewer parameters than our model.
    """
    del arguments.python  # the paths of one machine; the versions are recorded
    versions, losses = {}, {}
    for case in cases:
        figures = found[case.subject]
        if "skipped" in figures:
            continue
        versions[case.what["model"]], losses[case.subject] = figures["versions"], figures["losses"]
        if case.against:
            count, own = figures["parameters"], found[case.against]["parameters"]
            if abs(count - own) > own / 100:
                raise ValueError(f"{case.subject} has {count:,} parameters, {case.against} {own:,}: change --width")
            figures["speed"] = figures["seconds"] / found[case.against]["seconds"]
            figures["memory"] = found[case.against]["memory_mib"] / max(figures["memory_mib"], 0.1)
    return {"peers": versions, "losses": losses}


BENCHMARK = Benchmark(
    DESCRIPTION, add_options, partial(measuring.run, cases_of=cases, finish=finish, apart=False), measure, SMOKE
)
