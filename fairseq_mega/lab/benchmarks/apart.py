"""Measurements in separate processes, which have only imported the benchmark."""

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any, Dict

from .command import find, module_of


def run_apart(part: str, arguments: argparse.Namespace, title: str) -> Dict[str, Any]:
    """Measure a part of a benchmark in a fresh process, and return its measurements.

    The processes are copies of a process that has imported the benchmark: an import is slower than most measurements.

    Args:
        part: of the benchmark, the argument of its ``measure``.
        arguments: of its command line; ``threads`` is set by the first measurement of this process.
        title: of the part in a message.

    Raises:
        SystemExit: if the process fails, with its messages.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__, module_of(arguments.benchmark)])
    os.environ.update(OMP_NUM_THREADS=str(arguments.threads))
    with tempfile.TemporaryDirectory() as folder:
        found, messages = Path(folder) / "found.json", Path(folder) / "messages"
        process = context.Process(target=_measure, args=(part, arguments, found, messages))
        process.start()
        process.join()
        if process.exitcode != 0:
            said = messages.read_text(errors="replace") if messages.exists() else ""
            raise SystemExit(f"measuring {title} failed (exit status {process.exitcode}):\n{said}")
        return json.loads(found.read_text())


def _measure(part: str, arguments: argparse.Namespace, found: Path, messages: Path) -> None:
    """Write the measurements of a part of a benchmark to one file, and its output to another."""
    with messages.open("w") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    warnings.simplefilter("ignore")
    measure = find(arguments.benchmark).measure
    assert measure is not None, f"{arguments.benchmark} does not measure in a separate process"
    found.write_text(json.dumps(measure(part, arguments)))
