"""Description of the GPU of measurements."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, Dict

import torch

from fairseq_mega.lab.benchmarks.command import Benchmark


def describe(device: str) -> Dict[str, Any]:
    """Describe the GPU (with ``device`` "cpu": none) and the versions of torch, CUDA and Python."""
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    if device == "cpu":
        return {"gpu": None, **versions}
    gpu = torch.cuda.get_device_properties(0)
    return {
        "gpu": gpu.name,
        "capability": f"{gpu.major}.{gpu.minor}",
        "memory_gib": round(gpu.total_memory / 2**30, 1),
        "multiprocessors": gpu.multi_processor_count,
        **versions,
    }


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``device``."""
    parser.add_argument("output", type=Path, help="file to write")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cuda", help="cpu: do not describe the GPU")


def run(arguments: argparse.Namespace) -> None:
    """Write the description to a file, and print it."""
    text = json.dumps(describe(arguments.device), indent=2)
    arguments.output.write_text(text)
    print(text)


BENCHMARK = Benchmark("Describe the GPU and the versions of torch, CUDA and Python as a JSON file.", add_options, run)
