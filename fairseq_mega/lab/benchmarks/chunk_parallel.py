"""Time, and memory of each process, if several processes share one sequence."""

import argparse
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks import apart, forked, measuring
from fairseq_mega.lab.benchmarks.options import Benchmark, add_common_options, chosen_of
from fairseq_mega.models.on_paper import stand_in
from fairseq_mega.models.process_wire import ProcessWire
from fairseq_mega.modules.relay import Relay
from fairseq_mega.tasks.chunk_parallel import bounds

DESCRIPTION = """\
Time, and memory of each process, if several processes share one sequence (--chunk-parallel-size).

One forward and backward pass of a language model over one sequence. The largest peak memory of a process, without the
model, should fall towards 1/N of the peak of one process. The time is meaningful only with a core or GPU per process.
"""
MODELS = {"mega": "mega_lm", "megalodon": "megalodon_lm"}
SMOKE = ("--length=64", "--width=32", "--layers=1", "--chunk=16", "--repeat=1", "--sizes=1,2")
PATIENCE = 3600.0  # seconds for a message


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``chunk-parallel``."""
    add = parser.add_argument
    add("--length", type=int, default=65536, help="tokens of the sequence (default: %(default)s)")
    add("--sizes", default="1,2,4", help="numbers of processes N, comma separated (default: %(default)s)")
    add("--models", default=",".join(MODELS), help="models, comma separated (default: %(default)s)")
    add("--width", type=int, default=128, help="width d (default: %(default)s)")
    add("--layers", type=int, default=4, help="number of layers (default: %(default)s)")
    add("--chunk", type=int, default=128, help="attention chunk (default: %(default)s)")
    add("--symbols", type=int, default=256, help="size of the dictionary (default: %(default)s)")
    add_common_options(parser, repeat=3)


def model_options(name: str, arguments: argparse.Namespace) -> Dict[str, Any]:
    """Options of a language model without dropout, of inner widths 2 d, z = d / 2 and N = 16."""
    d = arguments.width
    options: Dict[str, Any] = {
        "decoder_embed_dim": d,
        "decoder_hidden_dim": 2 * d,
        "decoder_ffn_embed_dim": 2 * d,
        "decoder_z_dim": d // 2,
        "decoder_n_dim": 16,
        "decoder_layers": arguments.layers,
        "decoder_chunk_size": arguments.chunk,
        "share_decoder_input_output_embed": True,
        "dropout": 0.0,
        "max_target_positions": arguments.length,
    }
    if name == "mega":
        options.update(normalize_before=True, no_affine_final_norm=True, rel_pos_bias="rotary")
    else:
        options.update(swiglu=True, decoder_attention_heads=1, norm_num_groups=min(32, d))
    return options


def build(name: str, arguments: argparse.Namespace) -> Any:
    """Build a language model with these options."""
    dictionary = stand_in(arguments.symbols)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary, dictionary=dictionary)
    return ARCH_MODEL_REGISTRY[MODELS[name]].build_model(Namespace(**model_options(name, arguments)), task)


def measure(part: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure MODEL:N with N processes; return the largest memory and time."""
    name, size = part.split(":")[0], int(part.split(":")[1])
    return forked.largest(measure_piece, size, name, arguments)


def measure_piece(piece: int, size: int, init: str, name: str, arguments: argparse.Namespace) -> Dict[str, float]:
    """Measure in the process of one piece; return its measurements."""
    configure_process()  # as fairseq-mega-train does
    torch.set_num_threads(arguments.threads)
    device, backend = torch.device(arguments.device), "gloo"
    if device.type == "cuda":
        device, backend = torch.device("cuda", piece), "nccl"
        torch.cuda.set_device(device)
    dist.init_process_group(backend, init_method=init, rank=piece, world_size=size)
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
    return found


def run(arguments: argparse.Namespace) -> None:
    """Print a row per model and number of processes, and write the result file."""
    scores: Dict[str, float] = {}
    print(f"| model, L = {arguments.length:,} | N | tokens of a process | peak MiB of a process | of one | s |")
    print("|---|---|---|---|---|---|")
    sizes = sorted(int(size) for size in arguments.sizes.split(","))
    for name in chosen_of(arguments.models, "--models", list(MODELS)):
        first = 0.0
        for size in sizes:
            found = apart.run_apart(f"{name}:{size}", arguments, f"{name} with {size} processes")
            memory, seconds = found["memory_mib"], found["seconds"]
            first = first or memory
            scores.update({f"{name} N={size} {key}": value for key, value in found.items()})
            begin, end = bounds(arguments.length, arguments.chunk, size)[0]
            row = f"{end - begin:,} | {memory:.1f} | {memory / first:.2f} | {seconds:.2f}"
            print(f"| {name}, chunk {arguments.chunk} | {size} | {row} |", flush=True)
    measuring.write_measurements(arguments, scores, examples=arguments.length)


BENCHMARK = Benchmark(DESCRIPTION, add_options, run, measure, SMOKE)
