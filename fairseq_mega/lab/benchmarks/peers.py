"""Training speed and peak memory of language models compared with other implementations of the same models."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Sequence

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import (
    Benchmark,
    add_common_options,
    add_rows_options,
    add_size_options,
    chosen_of,
)
from fairseq_mega.lab.runs.options import split_assignment


class Peer(NamedTuple):
    """An implementation to compare with a model of this package; ``install`` has the arguments of pip install."""

    ours: str
    meaning: str
    install: str = ""


PEERS = {
    "megalodon-jax": Peer("megalodon", "MEGALODON of megalodon-jax, compiled by XLA", "megalodon-jax==0.2.2"),
    "megalodon-published": Peer("megalodon", "ours in the published arrangement, as in the benchmark of a layer"),
    "transformers": Peer("mega", "MEGA of transformers, which had it until 4.57", "transformers==4.57.6 torch"),
    "mega-published": Peer("mega", "ours in the published arrangement, as in the benchmark of a layer"),
    "mega-pytorch": Peer("mega-full", "MEGA of mega-pytorch, without chunks", "mega-pytorch==0.1.0 numpy"),
}
INSTALLED = [name for name, peer in PEERS.items() if peer.install]
DESCRIPTION = """\
Training speed and peak memory of language models, compared with other implementations of the same models.

A forward and backward pass in float32 over the same random tokens, on a CPU; without optimizer: megalodon-jax has
none. Every model runs in a separate process, in the environment of its package. The processes of a shape take turns,
and the median of the passes counts. Peak memory is counted on top of the model and its compiled program. Parameters
differ by at most one percent. First, two steps down the gradients must lower the loss by as much as the gradients
predict. A peer that is not installed is skipped. "At most" is the speed of a model that computed nothing but the
matrix products of ours, at the peak of the cores' registers. The peers:

""" + "\n".join(f"  {name} (beside {peer.ours}): {peer.meaning}" for name, peer in PEERS.items())
SMOKE = ("--shapes=2x32", "--layers=1", "--chunk=16", "--repeat=1")
WORKER = Path(__file__).with_name("peers_worker.py")
# glibc's settings, the same as in compat.processes.cpu_process.
KEEP_FREED_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**62)}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``peers``."""
    add = parser.add_argument
    add("--peers", default=",".join(PEERS), help=f"peers, comma separated, of: {', '.join(PEERS)} (default: all)")
    python = f"Python of the environment of {', '.join(INSTALLED)}; may be repeated (default: this Python)"
    add("--python", action="append", default=[], metavar="PEER=PATH", help=python)
    keep = "make glibc keep freed memory in peers, too, as fairseq-mega-train does"
    add("--keep-freed-memory", action="store_true", help=keep)
    add("--shapes", default="2x512,8x512,1x4096", help="batch x length, comma separated (default: %(default)s)")
    add_size_options(parser, width=384, layers=6, chunk=512, symbols=260)
    add("--seed", type=int, default=1, help="seed of the tokens (default: %(default)s)")
    add_rows_options(parser)
    add_common_options(parser, repeat=5)


class Worker:
    """A process of ``peers_worker.py`` with a model, which ends with the context; its messages go to stderr.

    Attributes:
        found: its first answer.
    """

    def __init__(self, model: str, python: str, sizes: Dict[str, Any], keep_freed: bool = False) -> None:
        memory = KEEP_FREED_MEMORY if keep_freed else {}
        self.model = model
        self.process = subprocess.Popen(
            [python, str(WORKER), json.dumps({**sizes, "model": model})],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(sizes["threads"]), **memory},
        )

    def __enter__(self) -> "Worker":
        self.found = self.answer()
        return self

    def __exit__(self, *_: Any) -> None:
        self.process.kill()
        self.process.communicate()

    def request(self, word: str) -> Dict[str, Any]:
        """Send a word, and return the answer."""
        print(word, file=self.process.stdin, flush=True)
        return self.answer()

    def answer(self) -> Dict[str, Any]:
        """Return the next answer; raise ValueError for a reported fault, or if the process ended."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            raise ValueError(f"{self.model} ended with exit status {self.process.wait()}")
        found: Dict[str, Any] = json.loads(line)
        if "fault" in found:
            raise ValueError(f"{self.model}: {found['fault']}")
        return found


def measure_beside(
    ours: str, peers: Sequence[str], pythons: Dict[str, str], sizes: Dict[str, Any], arguments: argparse.Namespace
) -> Dict[str, Dict[str, Any]]:
    """Measure a model of this package and its peers by turns.

    Args:
        ours: name of our model.
        peers: names of its peers.
        pythons: interpreter of each model.
        sizes: settings as in ``peers_worker.py``, without the model.
        arguments: of the command line, for the number of turns and the allocator.

    Returns:
        ``seconds``, ``memory_mib``, ``parameters``, ``products``, ``losses`` and ``versions`` of every model that is
        installed, and the ``peak`` of the cores, operations per second or None.

    Raises:
        ValueError: if a peer has more or fewer parameters than our model, or a model cannot be trained.
    """
    with ExitStack() as ended:
        workers: Dict[str, Worker] = {}
        for name in (ours, *peers):
            print(f"building {name}", file=sys.stderr)
            python, keep_freed = pythons.get(name, sys.executable), arguments.keep_freed_memory and name != ours
            worker = ended.enter_context(Worker(name, python, sizes, keep_freed))
            if "missing" in worker.found:
                install = f"{python} -m pip install {PEERS[name].install}"
                print(f"{name} is skipped, no module {worker.found['missing']}: {install}", file=sys.stderr)
                continue
            workers[name] = worker
            count, own = worker.found["parameters"], workers[ours].found["parameters"]
            if abs(count - own) > own / 100:
                raise ValueError(f"{name} has {count:,} parameters and {ours} {own:,}: give another --width")
        seconds: Dict[str, List[float]] = {name: [] for name in workers}
        peak = measuring.float32_peak(arguments.threads)
        for turn in range(arguments.repeat):
            print(f"turn {turn + 1} of {arguments.repeat}: {', '.join(workers)}", file=sys.stderr)
            for name, worker in workers.items():
                seconds[name].append(worker.request("step")["seconds"])
        return {
            name: {
                **worker.found,
                "seconds": statistics.median(seconds[name]),
                "peak": peak,
                **worker.request("memory"),
            }
            for name, worker in workers.items()
        }


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and shape, and write the result file."""
    pythons = dict(split_assignment("--python", text, "mega-pytorch=mega/bin/python") for text in arguments.python)
    chosen_of(",".join(pythons) or INSTALLED[0], "--python", INSTALLED)
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.shapes.split(",")]
    chosen = chosen_of(arguments.peers, "--peers", list(PEERS))
    groups = {PEERS[name].ours: [peer for peer in chosen if PEERS[peer].ours == PEERS[name].ours] for name in chosen}
    sizes = {name: getattr(arguments, name) for name in ("width", "layers", "chunk", "symbols", "threads", "seed")}
    settings = {**sizes, "repeat": arguments.repeat, "keep_freed_memory": arguments.keep_freed_memory}
    kept = measuring.Rows(arguments, settings)
    scores: Dict[str, float] = {}
    details: Dict[str, Dict[str, Any]] = {"peers": {}, "losses": {}}
    print("| model | batch x L | parameters | tokens/s | ours is | at most | peak MiB | ours needs |")
    print("|---|---|---|---|---|---|---|---|")
    for batch, length in shapes:
        for ours, peers in groups.items():
            shape = {"batch": batch, "length": length}
            measure = partial(measure_beside, ours, peers, pythons, {**sizes, **shape}, arguments)
            found = kept.of(measure, models=[ours, *peers], **shape)
            for name, row in found.items():
                subject = f"{name}, batch {batch} L={length}"
                details["losses"][subject], details["peers"][name] = row["losses"], row["versions"]
                figures = {key: row[key] for key in ("seconds", "memory_mib", "parameters")}
                against = ["", "", ""]
                if name != ours:
                    figures["speed"] = row["seconds"] / found[ours]["seconds"]
                    figures["memory"] = found[ours]["memory_mib"] / max(row["memory_mib"], 0.1)
                    against = [f"{figures['speed']:.2f}x as fast", "", f"{figures['memory']:.2f}x as much"]
                if row["peak"] is not None:
                    figures["speed_limit"] = row["seconds"] * row["peak"] / found[ours]["products"]
                    against[1] = f"{figures['speed_limit']:.2f}x"
                scores.update({f"{subject} {key}": value for key, value in figures.items()})
                rate = f"{row['parameters']:,} | {batch * length / row['seconds']:,.0f} | {against[0]} | {against[1]}"
                memory = f"{row['memory_mib']:,.0f} | {against[2]}"
                print(f"| {name} | {batch} x {length:,} | {rate} | {memory} |", flush=True)
    delattr(arguments, "python")  # the paths of one machine; the versions are recorded
    tokens = sum(batch * length for batch, length in shapes)
    measuring.write_measurements(arguments, scores, examples=tokens * arguments.repeat, **details)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, smoke=SMOKE)
