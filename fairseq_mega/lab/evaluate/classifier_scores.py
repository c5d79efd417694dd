"""The test accuracy of a trained classifier, and the result file of its training."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any, Dict, Tuple

from fairseq_mega.lab.evaluate.lra_runs import BENCHMARK
from fairseq_mega.lab.evaluate.validation import Validate, score_split
from fairseq_mega.lab.runs.options import split_assignment
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.lab.runs.training_log import Training, Validation, read_training
from fairseq_mega.tasks.speech_commands import scaling_of


def scores_of(training: Training, early_epoch: int, batch: int) -> Dict[str, float]:
    """Scores of the training itself; accuracies in per cent."""
    scores = {
        "best_valid_accuracy": training.best.accuracy,
        "early_valid_accuracy": training.after(early_epoch).accuracy,
    }
    if training.updates_per_second is not None:
        scores["seconds_per_epoch"] = math.ceil(training.examples / batch) / training.updates_per_second
    if training.peak_gib is not None:
        scores["peak_memory_gib"] = training.peak_gib
    return scores


def typed_setting(text: str) -> Tuple[str, Any]:
    """Split NAME=VALUE; a JSON value (a number, null) is parsed.

    Raises:
        argparse.ArgumentTypeError: if a part is missing.
    """
    try:
        name, value = split_assignment("--setting", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
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
    add("--split", default="test", help="split to score (default: %(default)s)")
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


def write_scores(options: argparse.Namespace, validate: Validate) -> None:
    """Score a checkpoint and write the result file.

    Args:
        options: those of :func:`add_options`.
        validate: runs fairseq-mega-validate.

    Raises:
        OSError: if a file cannot be read or written.
        ValueError: if the log is not the log of a training.
        RuntimeError: if the scoring failed.
    """
    where = ["--cpu"] if options.cpu else ["--distributed-world-size", "1"]
    command = [options.data, "--task", options.task, "--path", options.path, "--num-workers", "0", *where]
    command += ["--batch-size", str(options.test_batch)]
    scores, settings, details = ({}, {}, {}) if options.log is None else read_log(options)
    log = (options.log or options.json).with_name("test.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    correct, examples = score_split(validate, command, log, options.split)
    scores = {options.score: 100.0 * correct / examples, **scores}
    settings = {**dict(options.setting), **settings}
    if options.task == "speech_commands":
        settings["scaling"] = scaling_of(Path(options.data))
    result = make_result(
        options.benchmark,
        options.label,
        scores,
        examples,
        options.command,
        options.seed,
        settings,
        correct=correct,
        **details,
    )
    write_result(options.json, result)
    reached = f"{options.score.replace('_', ' ')} {scores[options.score]:.2f} % ({correct} of {examples})"
    print(f"{options.label}: {reached}", file=sys.stderr)


def read_log(options: argparse.Namespace) -> Tuple[Dict[str, float], Dict[str, Any], Dict[str, Any]]:
    """Read scores, settings and further fields of a result from the log of its training."""
    with open(options.log, encoding="utf-8", errors="replace") as lines:
        training = read_training(lines, str(options.log))
    settings = {
        "parameters": training.parameters,
        "train_examples": training.examples,
        "batch": options.batch,
        "updates": training.validations[-1].updates,
        "best_epoch": training.best.epoch,
        "early_epoch": training.after(options.early_epoch).epoch,
        "trained_on": training.gpus or "cpu",
    }
    details = {
        "train_command": options.train_command.read_text(encoding="utf-8").strip(),
        "curve": [point_of(found) for found in training.validations],
    }
    return scores_of(training, options.early_epoch, options.batch), settings, details


def point_of(found: Validation) -> Dict[str, float]:
    """Return a validation as a point of a result's curve."""
    point = found._asdict()
    hours = point.pop("hours")
    return {**point, **({} if hours is None else {"hours": round(hours, 4)})}
