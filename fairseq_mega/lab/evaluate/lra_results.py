"""Train and test a classifier of the Long Range Arena or of speech, and write its measurements to a result file.

python -m fairseq_mega.lab.evaluate.lra_results train FAIRSEQ_TRAIN_ARGUMENT...
python -m fairseq_mega.lab.evaluate.lra_results test DATA --task TASK --path CHECKPOINT --log TRAIN_LOG --json FILE ...
"""

import argparse
import contextlib
import json
import logging
import math
import re
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

from fairseq_mega.cli import console
from fairseq_mega.cli.progress import parse_statistics
from fairseq_mega.compat.processes.cpu_process import configure_process
from fairseq_mega.lab.benchmarks.measuring import resident_mib
from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.lab.runs.training_log import CORE_HOURS, RESIDENT, read_log, read_training
from fairseq_mega.tasks.speech_commands import scaling_of

_CORRECT = re.compile(r"(\d+) of (\d+)")


def score_splits(arguments: Sequence[str], log_file: Path, splits: Sequence[str]) -> List[Tuple[int, int]]:
    """Score splits by fairseq-mega-validate; return the numbers of correct and of scored examples of each.

    Raises:
        RuntimeError: if the command failed or scored nothing of a split; its output is in ``log_file``.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    options = ["--valid-subset", ",".join(splits), "--no-progress-bar", "--log-format", "json"]
    with open(log_file, "w", encoding="utf-8") as log:
        try:
            root.handlers[:] = []  # the command removes all handlers, and logs to standard output
            with contextlib.redirect_stdout(log):
                status = console.run("validate", [*arguments, *options])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    found: Dict[str, str] = {}  # of several lines of a split the last counts
    for line in log_file.read_text(encoding="utf-8").splitlines():
        found.update(parse_statistics(line))
    counts = [_CORRECT.fullmatch(found.get(f"{split}_correct", "")) for split in splits]
    numbers = [(int(match[1]), int(match[2])) for match in counts if match is not None]
    if status != 0 or len(numbers) < len(splits) or not all(examples for _, examples in numbers):
        raise RuntimeError(f"fairseq-mega-validate failed (exit status {status}); its output is in {log_file}")
    return numbers


def typed_setting(text: str) -> Tuple[str, Any]:
    """Split NAME=VALUE; a JSON value (a number, null) is parsed."""
    name, _, value = text.partition("=")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of :func:`write_scores`."""
    add = parser.add_argument
    add("data", help="data folder")
    add("--task", required=True, help="fairseq's task")
    add("--path", required=True, help="checkpoint")
    about = "splits to score, separated by commas: SPLIT_accuracy is recorded of those after the first (default: test)"
    add("--split", type=lambda text: text.split(","), default=["test"], help=about)
    add("--score", default="test_accuracy", help="name of the accuracy in the result file (default: %(default)s)")
    add("--json", type=Path, required=True, help="result file to write")
    add("--benchmark", default=BENCHMARK, help="name in the result file (default: %(default)s)")
    add("--label", required=True, help="name of the run")
    add("--command", required=True, help="command that started the run")
    add("--test-batch", type=int, required=True, help="examples of a batch")
    add("--log", type=Path, help="log of the training; test.log is written beside it (default: there was no training)")
    add("--train-command", type=Path, help="file that holds the command of the training")
    add("--seed", type=int, help="seed of the training")
    add("--batch", type=int, help="examples of an update")
    add("--early-epoch", type=int, help="epoch whose validation accuracy is also reported")
    add("--cpu", action="store_true", help="score on the CPU")
    add("--setting", type=typed_setting, action="append", default=[], help="NAME=VALUE to record in the result file")


def write_scores(options: argparse.Namespace) -> None:
    """Score a checkpoint and write the result file.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if the log is not the log of a training.
        RuntimeError: if the scoring failed.
    """
    where = ["--cpu"] if options.cpu else ["--distributed-world-size", "1"]
    command = [options.data, "--task", options.task, "--path", options.path, "--num-workers", "0", *where]
    command += ["--batch-size", str(options.test_batch)]
    scores, settings, details = ({}, {}, {}) if options.log is None else numbers_of_training(options)
    log = (options.log or options.json).with_name("test.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    (correct, examples), *further = score_splits(command, log, options.split)
    scores = {options.score: 100.0 * correct / examples, **scores}
    for split, (right, of) in zip(options.split[1:], further):
        scores[f"{split}_accuracy"] = 100.0 * right / of
    settings = {**dict(options.setting), **settings}
    if options.task == "speech_commands":
        settings["scaling"] = scaling_of(Path(options.data))
    about = (options.benchmark, options.label, scores, examples, options.command, options.seed, settings)
    result = make_result(*about, correct=correct, **details)
    write_result(options.json, result)
    reached = f"{options.score.replace('_', ' ')} {scores[options.score]:.2f} % ({correct} of {examples})"
    print(f"{options.label}: {reached}", file=sys.stderr)


def numbers_of_training(options: argparse.Namespace) -> Tuple[Dict[str, float], Dict[str, Any], Dict[str, Any]]:
    """Read scores (accuracies in per cent), settings and further fields of a result from the log of its training."""
    training = read_training(read_log(options.log), str(options.log))
    early = training.after(options.early_epoch)
    scores = {"best_valid_accuracy": training.best.accuracy, "early_valid_accuracy": early.accuracy}
    if training.updates_per_second is not None:
        scores["seconds_per_epoch"] = math.ceil(training.examples / options.batch) / training.updates_per_second
    if training.peak_gib is not None:
        scores["peak_memory_gib"] = training.peak_gib
    settings = {
        "parameters": training.parameters,
        "train_examples": training.examples,
        "batch": options.batch,
        "updates": training.validations[-1].updates,
        "best_epoch": training.best.epoch,
        "early_epoch": early.epoch,
        "trained_on": training.gpus or "cpu",
    }
    curve = []
    for point in (found._asdict() for found in training.validations):
        hours = point.pop("hours")
        curve.append({**point, **({} if hours is None else {"hours": round(hours, 4)})})
    return scores, settings, {"train_command": options.train_command.read_text("utf-8").strip(), "curve": curve}


def print_core_hours(record: logging.LogRecord) -> bool:
    """Print the hours that the threads of this process have computed, before a record of the log."""
    print(json.dumps({CORE_HOURS: round(time.process_time() / 3600, 4)}), flush=True)
    return True


def train(arguments: Sequence[str]) -> int:
    """Run fairseq-mega-train, and print the time of the CPU with each record, and as the last line the peak memory."""
    configure_process()
    logger = logging.getLogger("fairseq.logging.progress_bar")
    logger.addFilter(print_core_hours)
    try:
        status = console.run("train", arguments)
    finally:
        logger.removeFilter(print_core_hours)
    if Path("/proc/self/status").exists():
        print(json.dumps({RESIDENT: round(resident_mib("VmHWM") / 1024, 3)}), flush=True)
    return status


def main(arguments: Optional[List[str]] = None) -> int:
    """Run the command; return its exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    if given[:1] == ["train"]:
        return train(given[1:])
    parser = argparse.ArgumentParser(prog="lra_results", description=__doc__)
    commands = parser.add_subparsers(dest="step", required=True)
    commands.add_parser("train", help="train, with the arguments of fairseq-mega-train", add_help=False)
    add_options(commands.add_parser("test", help="score the best checkpoint and write the result"))
    try:
        write_scores(parser.parse_args(given))
    except (OSError, ValueError, RuntimeError) as error:
        print(f"lra_results: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
