"""Bytes that each process of a training holds and sends, compared with estimates."""

import argparse
import gc
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, Sequence

import torch
import torch.distributed as dist
from fairseq import options as fairseq_options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.trainer import Trainer
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

from fairseq_mega.cli.console import with_user_dir
from fairseq_mega.lab.benchmarks import apart, forked, measuring
from fairseq_mega.lab.benchmarks.chunk_parallel import MODELS, model_options
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, chosen_of
from fairseq_mega.lab.benchmarks.shared_costs import Shared, Sharing
from fairseq_mega.models.cost import AUTOCAST, FLOAT32, ROUNDED, Precision, compiled_kernels
from fairseq_mega.models.on_paper import stand_in
from fairseq_mega.tasks.mega_language_modeling import MegaLanguageModelingTask

DESCRIPTION = """\
Bytes that each training process holds and sends, compared with estimates.

Updates of two batches by fairseq's trainer in processes on this CPU. Held: living tensors, counted after each operator.
Sent: tensors given to collectives, as rings would send them. Written: bytes that the process wrote into sockets with
gloo, which uses two rings instead of one.
"""
SMOKE = ("--length=256", "--width=32", "--layers=2", "--chunk=32", "--symbols=100", "--models=mega", "--sizes=2")
PASSES = 2  # for an update
NUMBERS = ("held", "held_on_paper", "sent", "sent_on_paper", "written")  # of a training, in bytes


class Case(NamedTuple):
    """Options of a training."""

    precision: Precision
    sharing: Sharing


def cases_of(processes: int, chosen: str = "") -> Dict[str, Case]:
    """Return the measured trainings by name: those in a comma-separated list, or all."""
    shared = Sharing(processes)
    sharded = shared._replace(sharded=True)
    recomputed = sharded._replace(recomputed=True)
    cases = {
        "copies": Case(FLOAT32, shared),
        "copies in pieces": Case(AUTOCAST, shared._replace(pieces=processes)),
        "sharded": Case(FLOAT32, sharded),
        "sharded gathered": Case(FLOAT32, sharded._replace(gathered=True)),
        "sharded recomputed": Case(ROUNDED, recomputed),
        "sharded recomputed in pieces": Case(ROUNDED, recomputed._replace(pieces=processes)),
    }
    return {name: cases[name] for name in chosen_of(chosen or ",".join(cases), "--cases", list(cases))}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``sharing``."""
    add = parser.add_argument
    add("--length", type=int, default=1024, help="tokens of a sequence (default: %(default)s)")
    add("--sizes", default="2,4", help="numbers of processes N, comma separated (default: %(default)s)")
    add("--models", default=",".join(MODELS), help="models, comma separated (default: %(default)s)")
    add("--cases", default=",".join(cases_of(2)), help="cases, comma separated (default: %(default)s)")
    add("--width", type=int, default=128, help="width d (default: %(default)s)")
    add("--layers", type=int, default=4, help="number of layers (default: %(default)s)")
    add("--chunk", type=int, default=128, help="attention chunk (default: %(default)s)")
    add("--symbols", type=int, default=1000, help="size of the dictionary (default: %(default)s)")
    add_common_options(parser, repeat=None)


class Counted(TorchDispatchMode):
    """Counter of the bytes of living tensors, and of the bytes that collectives send, while operators run within it."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.sent = 0
        self._sizes: Dict[StorageWeakRef, int] = {}
        self._bound = 0  # bytes of tensors that live now

    def __torch_dispatch__(self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        if function.namespace == "c10d":
            self.sent += _sent_by(function, args)
        for tensor in _tensors((args, kwargs, result)):
            storage = tensor.untyped_storage()
            reference, size = StorageWeakRef(storage), storage.nbytes()
            self._bound += max(size - self._sizes.get(reference, 0), 0)
            self._sizes[reference] = size
        if self._bound > self.most:
            self._bound = self._now()
            self.most = max(self.most, self._bound)
        return result

    def _now(self) -> int:
        """Return the bytes of living tensors at their present size: sharded models empty some tensors."""
        living = {ref: torch.UntypedStorage._new_with_weak_ptr(ref.cdata) for ref in self._sizes}
        self._sizes = {ref: storage.nbytes() for ref, storage in living.items() if storage is not None}
        return sum(self._sizes.values())


def _tensors(value: Any) -> Iterator[Tensor]:
    """Return the tensors in nested sequences and dictionaries, without distributed ones, whose parts pass operators
    too.
    """
    if type(value) in (Tensor, nn.Parameter):
        yield value
    elif isinstance(value, (tuple, list, dict)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _sent_by(function: Any, args: Sequence[Any]) -> int:
    """Return the bytes that a process sends for a collective of all processes, by a ring, or for a message."""
    count, name = dist.get_world_size(), function._schema.name.removeprefix("c10d::")
    sizes = [sum(tensor.nbytes for tensor in _tensors(argument)) for argument in args]
    shares = {  # of the argument
        "allreduce_": (0, 2 * (count - 1) / count),
        "_reduce_scatter_base_": (1, (count - 1) / count),
        "_allgather_base_": (1, count - 1.0),
        "allgather_": (1, count - 1.0),
        "broadcast_": (0, 1.0),
        "send": (0, 1.0),
        "recv_": (0, 0.0),
        "barrier": (0, 0.0),
    }
    argument, share = shares[name]
    return round(share * sizes[argument])


def written() -> int:
    """Return the bytes that this process has written into files and sockets (Linux)."""
    lines = dict(line.split(": ") for line in Path("/proc/self/io").read_text().splitlines())
    return int(lines["wchar"])


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure MODEL:N: for each case the most bytes that a process holds, sends and writes, and the estimates."""
    name, size = part.split(":")[0], int(part.split(":")[1])
    found = forked.largest(measure_process, size, name, arguments)
    options = {**model_options(name, arguments), "_name": MODELS[name]}
    for title, (precision, sharing) in cases_of(size, arguments.cases).items():
        model = Shared(options, arguments.symbols, precision)
        found[f"{title} held_on_paper"] = model.held(sharing, arguments.length // sharing.pieces).total
        found[f"{title} sent_on_paper"] = model.sent(sharing, PASSES, 1).most(sharing.pieces)
    return found


def measure_process(rank: int, processes: int, init: str, name: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Train in one of several processes; return for each case the bytes held, sent and written for an update."""
    torch.set_num_threads(arguments.threads)
    dist.init_process_group("gloo", init_method=init, rank=rank, world_size=processes)
    found: Dict[str, float] = {}
    with compiled_kernels():
        for title, case in cases_of(processes, arguments.cases).items():
            for number, value in measure_case(rank, processes, name, case, arguments).items():
                found[f"{title} {number}"] = value
            gc.collect()
    dist.barrier()  # messages must arrive before this process ends
    dist.destroy_process_group()
    return found


def measure_case(rank: int, processes: int, name: str, case: Case, arguments: argparse.Namespace) -> Dict[str, float]:
    """Return the peak bytes that this process holds for a training, and those sent and written for its last update."""
    tokens = torch.randint(4, arguments.symbols, (1, arguments.length))
    batch = {
        "id": torch.arange(1),
        "nsentences": 1,
        "ntokens": tokens.numel(),
        "net_input": {"src_tokens": tokens, "src_lengths": torch.tensor([arguments.length])},
        "target": tokens,
    }
    with Counted() as counted:
        trainer = trainer_of(rank, processes, name, case, arguments)
        trainer.train_step([batch] * PASSES)  # the first update creates the optimiser's tensors
        counted.sent, before = 0, written()
        trainer.train_step([batch] * PASSES)
    return {"held": counted.most, "sent": counted.sent, "written": written() - before}


def trainer_of(rank: int, processes: int, name: str, case: Case, arguments: argparse.Namespace) -> Any:
    """Return fairseq's trainer as built by fairseq-mega-train, of a task without data."""
    words: List[str] = ["no-data", "--task", "mega_language_modeling", "--arch", MODELS[name], "--cpu"]
    for option, value in model_options(name, arguments).items():
        words += [f"--{option.replace('_', '-')}", *([] if value is True else [str(value)])]
    chunks = str(-(-arguments.length // arguments.chunk))
    words += ["--variant-block-multiple-min", chunks, "--variant-block-multiple-max", chunks]
    words += ["--tokens-per-sample", str(arguments.length), "--optimizer", "adam", "--lr", "1e-3", "--clip-norm", "0.5"]
    words += ["--distributed-world-size", str(processes), "--distributed-rank", str(rank), "--distributed-no-spawn"]
    words += [*case.precision.option.split(), *case.sharing.options()]
    parsed = fairseq_options.parse_args_and_arch(fairseq_options.get_training_parser(), with_user_dir(words))
    configuration = convert_namespace_to_omegaconf(parsed)
    dictionary = stand_in(arguments.symbols)
    task = MegaLanguageModelingTask(parsed, dictionary, dictionary)
    model, criterion = task.build_model(configuration.model), task.build_criterion(configuration.criterion)
    trainer = Trainer(configuration, task, model, criterion)
    trainer.begin_epoch(1)
    return trainer


def run(arguments: argparse.Namespace) -> None:
    """Print a row per training, and write the result file."""
    scores: Dict[str, float] = {}
    print("| model | N | training | held, MiB | on paper | sent, MiB | on paper | written by gloo, MiB |")
    print("|---|---|---|---|---|---|---|---|")
    for name in chosen_of(arguments.models, "--models", list(MODELS)):
        for size in sorted(int(size) for size in arguments.sizes.split(",")):
            found = apart.run_apart(f"{name}:{size}", arguments, f"{name} with {size} processes")
            scores.update({f"{name} N={size} {key}": value for key, value in found.items()})
            for case in cases_of(size, arguments.cases):
                cells = " | ".join(f"{found[f'{case} {key}'] / 2**20:.1f}" for key in NUMBERS)
                print(f"| {name} | {size} | {case} | {cells} |", flush=True)
    measuring.write_measurements(arguments, scores, examples=arguments.length)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
