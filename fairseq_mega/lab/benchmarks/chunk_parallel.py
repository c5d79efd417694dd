"""Time, and memory of each process, if several processes share one sequence."""

import argparse
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import measuring, models
from fairseq_mega.lab.benchmarks.command import Benchmark, add_common_options, add_size_options, chosen_of, numbers_of
from fairseq_mega.models.process_wire import ProcessWire
from fairseq_mega.modules.relay import Relay
from fairseq_mega.tasks.chunk_parallel import bounds

DESCRIPTION = """\
Time, and memory of each process, if several processes share one sequence (--chunk-parallel-size).

One forward and backward pass of a language model over one sequence. The largest peak memory of a process, without the
model, should fall towards 1/N of the peak of one process. The time is meaningful only with a core or GPU per process.
"""
MODELS = ("mega", "megalodon")
SMOKE = ("--length=64", "--width=32", "--layers=1", "--chunk=16", "--repeat=1", "--sizes=1,2")
PATIENCE = 3600.0  # seconds for a message


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``chunk-parallel``."""
    add = parser.add_argument
    add("--length", type=int, default=65536, help="tokens of the sequence (default: %(default)s)")
    add("--sizes", default="1,2,4", help="numbers of processes N, comma separated (default: %(default)s)")
    add("--models", default=",".join(MODELS), help="models, comma separated (default: %(default)s)")
    add_size_options(parser, width=128, layers=4, chunk=128, symbols=256)
    add_common_options(parser, repeat=3)


def build(name: str, arguments: argparse.Namespace) -> Any:
    """Build a language model, MEGALODON's with the FFN of its paper."""
    d = arguments.width
    heads = {"decoder_ffn_embed_dim": 2 * d, "swiglu": True, "decoder_attention_heads": 1}
    changes = {**heads, "norm_num_groups": min(32, d)} if name == "megalodon" else {}
    sizes = (d, arguments.layers, arguments.chunk, arguments.symbols, arguments.length)
    return models.build(name, *sizes, **changes)


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure MODEL:N with N processes, copies of this one; return the largest memory and time."""
    name, size = part.split(":")[0], int(part.split(":")[1])
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        given = (size, Path(folder), name, arguments)
        started = [context.Process(target=measure_piece, args=(piece, *given)) for piece in range(size)]
        for process in started:
            process.start()
        for process in started:
            process.join()
        if any(process.exitcode for process in started):
            raise SystemExit(f"processes ended with {[process.exitcode for process in started]}")
        found = [torch.load(Path(folder) / str(piece)) for piece in range(size)]
    return {key: max(one[key] for one in found) for key in found[0]}


def measure_piece(piece: int, size: int, folder: Path, name: str, arguments: argparse.Namespace) -> None:
    """Measure in the process of one piece; save its measurements in a folder, where the processes also meet."""
    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    device, backend = torch.device(arguments.device), "gloo"
    if device.type == "cuda":
        device, backend = torch.device("cuda", piece), "nccl"
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=f"file://{folder}/group", rank=piece, world_size=size)
    wire = ProcessWire(size, PATIENCE)
    torch.manual_seed(0)
    model = build(name, arguments).to(device).train()
    text = torch.randint(4, arguments.symbols, (1, arguments.length + 1), device=device)

    def update(span: Tuple[int, int], **options: Any) -> None:
        tokens, targets = (text[:, span[0] + later : span[1] + later] for later in (0, 1))
        F.cross_entropy(model(tokens, **options)[0].float().flatten(0, 1), targets.flatten()).backward()

    def update_piece() -> None:
        wire.meet()
        update(bounds(arguments.length, arguments.chunk, size)[piece], relay=Relay(wire))

    update((0, 32))  # excludes the one-time work of torch
    found = measuring.time_and_memory(update_piece, arguments.repeat, device)
    wire.meet()  # the messages of the last pass must arrive before this process ends
    dist.destroy_process_group()
    torch.save(found, folder / str(piece))


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and number of processes, and write the result file."""
    scores: Dict[str, float] = {}
    print(f"| model, L = {arguments.length:,} | N | tokens of a process | peak MiB of a process | of one | s |")
    print("|---|---|---|---|---|---|")
    for name in chosen_of(arguments.models, "--models", MODELS):
        first = 0.0
        for size in sorted(numbers_of(arguments.sizes)):
            found = measuring.run_apart(f"{name}:{size}", arguments)
            memory, seconds = found["memory_mib"], found["seconds"]
            first = first or memory
            scores.update({f"{name} N={size} {key}": value for key, value in found.items()})
            begin, end = bounds(arguments.length, arguments.chunk, size)[0]
            row = f"{end - begin:,} | {memory:.1f} | {memory / first:.2f} | {seconds:.2f}"
            print(f"| {name}, chunk {arguments.chunk} | {size} | {row} |", flush=True)
    measuring.write_measurements(arguments, scores, examples=arguments.length)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
