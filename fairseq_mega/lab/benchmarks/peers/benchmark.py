"""Training speed and peak memory of language models compared with other implementations of the same models."""

import argparse
import shutil
import statistics
import subprocess
import sys
from contextlib import ExitStack
from typing import Any, Dict, List, NamedTuple, Sequence, Tuple

from fairseq_mega.lab.benchmarks import measuring
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, add_rows_options, chosen_of
from fairseq_mega.lab.benchmarks.peers.process import Process, start
from fairseq_mega.lab.benchmarks.rows import Rows


class Peer(NamedTuple):
    """An implementation to compare with this package."""

    ours: str
    meaning: str
    module: str = ""  # module that its environment requires; empty: this package alone
    install: str = ""  # arguments of pip install


PEERS = {
    "megalodon-jax": Peer(
        "megalodon", "MEGALODON of megalodon-jax, compiled by XLA", "megalodon_jax", "megalodon-jax==0.2.2"
    ),
    "megalodon-published": Peer("megalodon", "ours in the published arrangement, as in the benchmark of a layer"),
    "transformers": Peer(
        "mega",
        "MEGA of transformers, which had it until 4.57",
        "transformers.models.deprecated.mega",
        "transformers==4.57.6 torch",
    ),
    "mega-published": Peer("mega", "ours in the published arrangement, as in the benchmark of a layer"),
    "mega-pytorch": Peer("mega-full", "MEGA of mega-pytorch, without chunks", "mega_pytorch", "mega-pytorch==0.1.0"),
}
INSTALLED = [name for name, peer in PEERS.items() if peer.module]
DESCRIPTION = """\
Training speed and peak memory of language models, compared with other implementations of the same models.

A forward and backward pass in float32 over the same random symbols, on a CPU; without optimizer: megalodon-jax has
none. Every model runs in a separate process, in the environment of its package. The processes of a shape take turns,
and the median of the passes counts. Peak memory is counted on top of the model and its compiled program. Parameters
differ by at most one percent. First, two steps down the gradients must lower the loss by as much as the gradients
predict. A peer that is not installed is skipped. "At most" is the speed of a model that computed nothing but the
matrix products of ours, at the peak of the cores' registers. The peers:

""" + "\n".join(f"  {name} (beside {peer.ours}): {peer.meaning}" for name, peer in PEERS.items())
SMOKE = ("--shapes=2x32", "--layers=1", "--chunk=16", "--repeat=1")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``peers``."""
    add = parser.add_argument
    add("--peers", default=",".join(PEERS), help=f"peers, comma separated, of: {', '.join(PEERS)} (default: all)")
    add(
        "--python",
        action="append",
        default=[],
        metavar="PEER=PATH",
        help=f"Python of the environment of {', '.join(INSTALLED)}; may be repeated (default: this Python)",
    )
    add(
        "--keep-freed-memory",
        action="store_true",
        help="make glibc keep freed memory in peers, too, as fairseq-mega-train does",
    )
    add("--shapes", default="2x512,8x512,1x4096", help="batch x length, comma separated (default: %(default)s)")
    add("--width", type=int, default=384, help="width d (default: %(default)s)")
    add("--layers", type=int, default=6, help="number of layers (default: %(default)s)")
    add(
        "--chunk",
        type=int,
        default=512,
        help="attention chunk of all but mega-full and mega-pytorch (default: %(default)s)",
    )
    add("--symbols", type=int, default=260, help="size of the dictionary (default: %(default)s)")
    add("--seed", type=int, default=1, help="seed of the symbols (default: %(default)s)")
    add_rows_options(parser)
    add_common_options(parser, repeat=5)


def interpreters_of(given: List[str]) -> Dict[str, str]:
    """Return the interpreter of every model: this one, except for peers with ``--python``.

    Raises:
        ValueError: if a ``--python`` does not name a peer and a program.
    """
    found = dict.fromkeys((*PEERS, *(peer.ours for peer in PEERS.values())), sys.executable)
    for text in given:
        name, _, path = text.partition("=")
        if name not in INSTALLED:
            raise ValueError(f"--python {text}: give PEER=PATH, the peer one of {', '.join(INSTALLED)}")
        if shutil.which(path) is None:
            raise ValueError(f"--python {text}: {path or 'nothing'} is not a program, give the interpreter of {name}")
        found[name] = path
    return found


def installed(chosen: Sequence[str], pythons: Dict[str, str]) -> List[str]:
    """Return the peers whose interpreter has their module, and print how to install the others.

    Raises:
        ValueError: if no peer is installed.
    """
    found = []
    for name in chosen:
        module = PEERS[name].module
        program = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
        if not module or not subprocess.run([pythons[name], "-c", program], stderr=subprocess.DEVNULL).returncode:
            found.append(name)
            continue
        print(f"{name} is not installed: {pythons[name]} -m pip install {PEERS[name].install}", file=sys.stderr)
    if not found:
        raise ValueError(f"--peers {','.join(chosen)}: none is installed; --python names the interpreter of one")
    return found


def shapes_of(given: str, chunk: int) -> List[Tuple[int, int]]:
    """Return the pairs of batch and length in ``--shapes``.

    Raises:
        ValueError: unless all are whole numbers, and every length is a multiple of the chunk or shorter than it.
    """
    shapes = []
    for text in given.split(","):
        batch, _, length = text.partition("x")
        if not (batch.isdecimal() and length.isdecimal() and int(batch) and int(length)):
            raise ValueError(f"--shapes {given}: {text!r} is not BATCHxLENGTH, for instance 2x512")
        if int(length) > chunk and int(length) % chunk:
            raise ValueError(f"--shapes {given}: {length} is not a multiple of --chunk {chunk}, as transformers needs")
        shapes.append((int(batch), int(length)))
    return shapes


def measure_beside(
    ours: str, peers: Sequence[str], pythons: Dict[str, str], sizes: Dict[str, Any], arguments: argparse.Namespace
) -> Dict[str, Dict[str, Any]]:
    """Measure a model of this package and its peers by turns.

    Args:
        ours: name of our model.
        peers: names of its peers.
        pythons: interpreter of each model.
        sizes: settings as in ``worker.py``, without the model.
        arguments: of the command line, for the number of turns and the allocator.

    Returns:
        ``seconds``, ``memory_mib``, ``parameters``, ``products``, ``losses`` and ``versions`` of every model, and the
        ``peak`` of the cores, operations per second or None.

    Raises:
        ValueError: if a peer has more or fewer parameters than our model, or a model cannot be trained.
    """
    with ExitStack() as ended:
        processes: Dict[str, Process] = {}
        for name in (ours, *peers):
            print(f"building {name}", file=sys.stderr)
            keep_freed = arguments.keep_freed_memory and name != ours
            processes[name] = ended.enter_context(start(pythons[name], {**sizes, "model": name}, keep_freed))
        found = {name: process.found for name, process in processes.items()}
        for name in peers:
            count, own = found[name]["parameters"], found[ours]["parameters"]
            if abs(count - own) > own / 100:
                raise ValueError(f"{name} has {count:,} parameters and {ours} {own:,}: give another --width")
        seconds: Dict[str, List[float]] = {name: [] for name in found}
        peak = measuring.float32_peak(arguments.threads)
        for turn in range(arguments.repeat):
            print(f"turn {turn + 1} of {arguments.repeat}: {', '.join(found)}", file=sys.stderr)
            for name in found:
                seconds[name].append(processes[name].ask("step")["seconds"])
        return {
            name: {**row, "seconds": statistics.median(seconds[name]), "peak": peak, **processes[name].ask("memory")}
            for name, row in found.items()
        }


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and shape, and write the result file."""
    if arguments.device != "cpu":
        raise ValueError(f"--device {arguments.device}: peers are measured on a CPU, give --device cpu")
    pythons, shapes = interpreters_of(arguments.python), shapes_of(arguments.shapes, arguments.chunk)
    chosen = installed(chosen_of(arguments.peers, "--peers", list(PEERS)), pythons)
    groups = {PEERS[name].ours: [peer for peer in chosen if PEERS[peer].ours == PEERS[name].ours] for name in chosen}
    sizes = {name: getattr(arguments, name) for name in ("width", "layers", "chunk", "symbols", "threads", "seed")}
    settings = {**sizes, "repeat": arguments.repeat, "keep_freed_memory": arguments.keep_freed_memory}
    kept = Rows(arguments.rows, settings, arguments.stop_after)
    scores: Dict[str, float] = {}
    details: Dict[str, Dict[str, Any]] = {"peers": {}, "losses": {}}
    print("| model | batch x L | parameters | tokens/s | ours is | at most | peak MiB | ours needs |")
    print("|---|---|---|---|---|---|---|---|")
    for batch, length in shapes:
        for ours, peers in groups.items():
            shape = {"batch": batch, "length": length}
            part = {"models": [ours, *peers], **shape}
            found = kept.find(**part)
            if found is None:
                found = measure_beside(ours, peers, pythons, {**sizes, **shape}, arguments)
                kept.add(found, **part)
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
    delattr(arguments, "python")  # the paths of one machine; the versions are kept
    tokens = sum(batch * length for batch, length in shapes)
    measuring.write_measurements(arguments, scores, examples=tokens * arguments.repeat, **details)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, smoke=SMOKE)
