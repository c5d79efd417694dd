"""Training speed and peak memory of language models compared with other implementations of the same models."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_size_options, chosen_of
from fairseq_mega.lab.runs.options import split_assignment


class Peer(NamedTuple):
    """An implementation to compare with a model of this package, perhaps in an environment of its own."""

    ours: str
    meaning: str
    installed: bool = True


PEERS = {
    "megalodon-jax": Peer("megalodon", "MEGALODON of megalodon-jax, compiled by XLA"),
    "megalodon-published": Peer("megalodon", "ours in the published arrangement, as in that of a layer", False),
    "transformers": Peer("mega", "MEGA of transformers, which had it until 4.57"),
    "mega-published": Peer("mega", "ours in the published arrangement, as in that of a layer", False),
    "mega-pytorch": Peer("mega-full", "MEGA of mega-pytorch, without chunks"),
}
INSTALLED = [name for name, peer in PEERS.items() if peer.installed]
DESCRIPTION = """\
A forward and backward pass in float32 over the same random tokens, on a CPU; without optimizer: megalodon-jax has
none. Every model runs in a separate process, in the environment of its package. The processes of a shape take turns,
and the median of the passes counts. Peak memory is counted on top of the model and its compiled program. Parameters
differ by at most one percent. First, two steps down the gradients must lower the loss by as much as the gradients
predict. A peer that is not installed is skipped. The peers:

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
    add_common_options(parser, repeat=5)


@contextmanager
def worker(python: str, settings: Dict[str, Any], keep_freed: bool) -> Iterator[Callable[[], Dict[str, Any]]]:
    """Start ``peers_worker.py`` and yield a function that requests its next answer; end the process at last.

    The function raises ValueError if the process ended; the process's messages are on stderr.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": str(settings["threads"])}
    environment.update(KEEP_FREED_MEMORY if keep_freed else {})
    given = [python, str(WORKER), json.dumps(settings)]
    pipes: Dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(given, **pipes, env=environment) as process:

        def request() -> Dict[str, Any]:
            print(file=process.stdin, flush=True)
            line = process.stdout.readline() if process.stdout else ""
            if not line:
                raise ValueError(f"{settings['model']} ended with exit status {process.wait()}")
            return dict(json.loads(line))

        try:
            yield request
        finally:
            process.kill()


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
        The answers of ``peers_worker.py`` for every model that is installed, with the median seconds.

    Raises:
        ValueError: if a peer has more or fewer parameters than our model, or a model cannot be trained.
    """
    with ExitStack() as ended:
        requests: Dict[str, Callable[[], Dict[str, Any]]] = {}
        found: Dict[str, Dict[str, Any]] = {}
        for name in (ours, *peers):
            print(f"building {name}", file=sys.stderr)
            python, keep_freed = pythons.get(name, sys.executable), arguments.keep_freed_memory and name != ours
            request = ended.enter_context(worker(python, {**sizes, "model": name}, keep_freed))
            answer = request()
            if "missing" in answer:
                print(f"{name} is skipped: {python} has no module {answer['missing']}", file=sys.stderr)
                continue
            requests[name], found[name] = request, answer
            count, own = answer["parameters"], found[ours]["parameters"]
            if abs(count - own) > own / 100:
                raise ValueError(f"{name} has {count:,} parameters and {ours} {own:,}: give another --width")
        seconds: Dict[str, List[float]] = {name: [] for name in requests}
        for turn in range(arguments.repeat):
            print(f"turn {turn + 1} of {arguments.repeat}: {', '.join(requests)}", file=sys.stderr)
            for name, request in requests.items():
                found[name].update(request())
                seconds[name].append(found[name]["seconds"])
    return {name: {**one, "seconds": statistics.median(seconds[name])} for name, one in found.items()}


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and shape, and write the result file."""
    pythons = dict(split_assignment("--python", text, "mega-pytorch=mega/bin/python") for text in arguments.python)
    chosen_of(",".join(pythons) or INSTALLED[0], "--python", INSTALLED)
    shapes = [tuple(map(int, shape.split("x"))) for shape in arguments.shapes.split(",")]
    chosen = chosen_of(arguments.peers, "--peers", list(PEERS))
    groups = {PEERS[name].ours: [peer for peer in chosen if PEERS[peer].ours == PEERS[name].ours] for name in chosen}
    sizes = {name: getattr(arguments, name) for name in ("width", "layers", "chunk", "symbols", "threads", "seed")}
    scores: Dict[str, float] = {}
    details: Dict[str, Dict[str, Any]] = {"peers": {}, "losses": {}}
    print("| model | batch x L | parameters | tokens/s | ours is | peak MiB | ours needs |")
    print("|---|---|---|---|---|---|---|")
    for batch, length in shapes:
        for ours, peers in groups.items():
            found = measure_beside(ours, peers, pythons, {**sizes, "batch": batch, "length": length}, arguments)
            for name, row in found.items():
                subject = f"{name}, batch {batch} L={length}"
                details["losses"][subject], details["peers"][name] = row["losses"], row["versions"]
                figures = {key: row[key] for key in ("seconds", "memory_mib", "parameters")}
                against = ["", ""]
                if name != ours:
                    figures["speed"] = row["seconds"] / found[ours]["seconds"]
                    figures["memory"] = found[ours]["memory_mib"] / max(row["memory_mib"], 0.1)
                    against = [f"{figures['speed']:.2f}x as fast", f"{figures['memory']:.2f}x as much"]
                scores.update({f"{subject} {key}": value for key, value in figures.items()})
                rate = f"{row['parameters']:,} | {batch * length / row['seconds']:,.0f} | {against[0]}"
                memory = f"{row['memory_mib']:,.0f} | {against[1]}"
                print(f"| {name} | {batch} x {length:,} | {rate} | {memory} |", flush=True)
    delattr(arguments, "python")  # the paths of one machine; the versions are recorded
    tokens = sum(batch * length for batch, length in shapes)
    measuring.write_measurements(arguments, scores, examples=tokens * arguments.repeat, **details)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, smoke=SMOKE)
