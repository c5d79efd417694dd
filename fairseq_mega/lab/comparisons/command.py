"""What both comparisons do: their folder, the threads, a training and a scoring of each model, the table."""

import argparse
import os
import shlex
import sys
from functools import partial
from typing import List, Optional

from fairseq_mega.lab.comparisons.classifiers import Classifiers
from fairseq_mega.lab.comparisons.language_models import LanguageModels
from fairseq_mega.lab.comparisons.options import CLASSIFIERS, parse
from fairseq_mega.lab.report.command import main as report
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.script import run_script


def folder_of(options: argparse.Namespace, *settings: str) -> Work:
    """The folder of the command line; what is in it belongs to these settings and the shared ones."""
    precision = [] if options.precision == "fp32" else [f"precision: {options.precision}"]
    switches = [f"{name}: {'yes' if getattr(options, name) else 'no'}" for name in ("gpu", "smoke")]
    shared = [f"data: {options.data}", f"updates: {options.updates}", f"lr: {options.lr}", f"seed: {options.seed}"]
    return Work(options.out, [*shared, *precision, *switches, *settings], "--out")


def use_threads(threads: Optional[int]) -> None:
    """Let the commands take so many threads, or all cores, which they give back while they wait."""
    usual = os.environ.get("OMP_NUM_THREADS") or len(os.sched_getaffinity(0))
    os.environ.update(OMP_NUM_THREADS=str(threads or usual), OMP_WAIT_POLICY="PASSIVE", GOMP_SPINCOUNT="0")


def compare(options: argparse.Namespace, command: str) -> None:
    """Train and score the models, as far as that has not been done, and print the table.

    Raises:
        StageError, OSError, ValueError: whose messages are for the user.
    """
    use_threads(options.threads)
    comparison: Classifiers | LanguageModels
    if options.kind == CLASSIFIERS:
        work = folder_of(options, f"task: {options.task}", f"chunk: {options.chunk}", f"batch: {options.batch}")
        comparison = Classifiers(options, work, command)
    else:
        contexts = f"exact contexts: {'yes' if options.exact else 'no'}"
        comparison = LanguageModels(options, folder_of(options, f"unit: {options.unit}", contexts))
    for model in options.models:
        comparison.work.stage(f"train-{model}", partial(comparison.train, model))
        comparison.work.stage(f"score-{model}", partial(comparison.score, model))
    if report(comparison.report()):
        raise StageError


def main(arguments: Optional[List[str]] = None) -> int:
    """Compare the kind of models that the first word names; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parse(given)
    command = shlex.join(["bash", f"scripts/{options.script}", *given[1:]])
    return run_script(options.script, lambda: compare(options, command))
