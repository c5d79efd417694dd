"""Train and test a classifier of the Long Range Arena or of speech, and write what was measured to a result file.

python -m fairseq_mega.cli.lra_results train FAIRSEQ_TRAIN_ARGUMENT...
python -m fairseq_mega.cli.lra_results test DATA --task TASK --path CHECKPOINT --log TRAIN_LOG --json FILE ...
"""

import argparse
import contextlib
import io
import json
import logging
import math
import re
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, TextIO, Tuple

from fairseq_mega.benchmarks.measuring import resident_mib
from fairseq_mega.cli import console
from fairseq_mega.compat.allocator import keep_freed_memory
from fairseq_mega.reports.log_progress import parse_statistics
from fairseq_mega.reports.lra_runs import BENCHMARK
from fairseq_mega.reports.results import ResultError, make_result, write_result
from fairseq_mega.tasks.speech_commands import scaling_of

RESIDENT = "peak_resident_gib"  # what `train` prints last
_TAG = re.compile(r"\| (valid|train_inner) \| \{")
_EXAMPLES = re.compile(r"\| train: ([\d,]+) (?:examples|images|clips)\b")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_GPU = re.compile(r"rank\s+\d+: .*total memory = ([\d.]+) GB ; name = (.*?)\s*$")
_CORRECT = re.compile(r"(\d+) of (\d+)")


class Validation(NamedTuple):
    """What was measured on the validation set after so many updates; accuracy in per cent, loss in bits."""

    epoch: int
    updates: int
    accuracy: float
    loss: float


class Training(NamedTuple):
    """What the log of a training says.

    Attributes:
        parameters: of the model.
        examples: of the training set.
        validations: in the order of the updates; of those repeated after an interruption the last.
        updates_per_second: median over the logged intervals; None where none is long enough.
        peak_gib: most memory that any GPU held, or the process where it ran on a CPU; None where the log does not say.
        gpus: their names; empty on a CPU.
    """

    parameters: int
    examples: int
    validations: List[Validation]
    updates_per_second: Optional[float]
    peak_gib: Optional[float]
    gpus: List[str]

    @property
    def best(self) -> Validation:
        """The validation whose checkpoint is checkpoint_best.pt: the last one of those with the best accuracy."""
        return max(self.validations, key=lambda found: (found.accuracy, found.updates))

    def after(self, epoch: int) -> Validation:
        """The last validation up to the end of an epoch, or the first one if there is none."""
        return [found for found in self.validations if found.epoch <= epoch or found == self.validations[0]][-1]


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def read_training(lines: Iterable[str], name: str = "the log") -> Training:
    """Read the log of ``train``, whose --log-format is json; a log of several starts is one training.

    Raises:
        ValueError: naming the log, if it holds no validation, or does not say how large the model and the data are.
    """
    parameters = examples = 0
    validations: Dict[int, Validation] = {}
    speeds: List[float] = []
    resident: List[float] = []
    free: List[float] = []
    total: List[float] = []
    gpus: Dict[str, str] = {}
    for line in lines:
        tagged = _TAG.search(line)
        found = parse_statistics(line) if tagged or RESIDENT in line else {}
        if tagged and not found:
            continue  # the process was killed while it wrote the line
        if tagged and tagged[1] == "valid":
            updates = int(found["valid_num_updates"])
            values = (float(found[f"valid_{key}"]) for key in ("accuracy", "loss"))
            # A start after an interruption repeats what came after the last checkpoint.
            validations[updates] = Validation(int(found["epoch"]), updates, *values)
        elif tagged:
            speeds += [float(found["ups"])] if float(found.get("ups", 0)) > 0 else []
            free += [float(found["gb_free"])] if "gb_free" in found else []
        elif RESIDENT in found:
            resident.append(float(found[RESIDENT]))
        elif "num. shared model params" in line and (match := _PARAMETERS.search(line)):
            parameters = _count(match[1])
        elif "train: " in line and (match := _EXAMPLES.search(line)):
            examples = _count(match[1])
        elif "total memory" in line and (match := _GPU.search(line)):
            total.append(float(match[1]))
            gpus[line[match.start() : match.start() + 9]] = match[2]
    if not validations or not parameters or not examples:
        what = "validation" if not validations else "size of the model" if not parameters else "number of examples"
        raise ValueError(f"{name} holds no {what}: it must be the whole log of a training with --log-format json")
    peak = min(total) - min(free) if total and free else max(resident, default=None)
    speed = statistics.median(speeds) if speeds else None
    ordered = [validations[updates] for updates in sorted(validations)]
    return Training(parameters, examples, ordered, speed, peak, list(gpus.values()))


class Listener(io.TextIOBase):
    """Keeps the output of fairseq-validate in a file, picks the result out, and shows how many examples were scored."""

    def __init__(self, log: TextIO, every: float = 20.0) -> None:
        self.correct = ""
        self.scored = 0
        self._log, self._line = log, ""
        self._every, self._shown = every, time.monotonic()

    def write(self, text: str) -> int:
        self._log.write(text)
        *lines, self._line = (self._line + text).split("\n")
        for line in lines:
            found = parse_statistics(line)
            self.correct = found.get("test_correct", self.correct)
            self.scored += int(found.get("nsentences", 0))
        if time.monotonic() - self._shown >= self._every:
            self._shown = time.monotonic()
            print(f"  {self.scored:,} examples tested", file=sys.stderr)
        return len(text)


def score_test(arguments: Sequence[str], log_file: Path) -> Tuple[int, int]:
    """Run fairseq-mega-validate on the test split; return how many examples were right, and of how many.

    Raises:
        RuntimeError: if it failed, or scored nothing; its output is in ``log_file``.
    """
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    options = ["--valid-subset", "test", "--no-progress-bar", "--log-format", "json", "--log-interval", "1"]
    with open(log_file, "w", encoding="utf-8") as log:
        listener = Listener(log)
        try:
            # Not a logging handler: the command takes all away that it finds, and logs to standard output.
            root.handlers[:] = []
            with contextlib.redirect_stdout(listener):
                status = console.run("validate", [*arguments, *options])
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
    match = _CORRECT.fullmatch(listener.correct)
    if status != 0 or match is None or int(match[2]) == 0:
        raise RuntimeError(f"fairseq-mega-validate failed (exit status {status}); its output is in {log_file}")
    return int(match[1]), int(match[2])


def scores_of(training: Training, early_epoch: int, batch: int) -> Dict[str, float]:
    """Scores that the training alone decides; accuracies in per cent."""
    scores = {
        "best_valid_accuracy": training.best.accuracy,
        "early_valid_accuracy": training.after(early_epoch).accuracy,
    }
    if training.updates_per_second is not None:
        scores["seconds_per_epoch"] = math.ceil(training.examples / batch) / training.updates_per_second
    if training.peak_gib is not None:
        scores["peak_memory_gib"] = training.peak_gib
    return scores


def parse_setting(text: str) -> Tuple[str, Any]:
    """NAME=VALUE; a value that is JSON (a number, null) becomes that."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise argparse.ArgumentTypeError(f"{text!r}: NAME=VALUE is needed")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def test(options: argparse.Namespace) -> None:
    """Score the best checkpoint on the test split and write the result file."""
    with open(options.log, encoding="utf-8", errors="replace") as lines:
        training = read_training(lines, str(options.log))
    where = ["--cpu"] if options.cpu else ["--distributed-world-size", "1"]
    command = [options.data, "--task", options.task, "--path", options.path, "--batch-size", str(options.test_batch)]
    correct, examples = score_test([*command, "--num-workers", "0", *where], options.log.with_name("test.log"))
    early = training.after(options.early_epoch)
    settings = {
        **dict(options.setting),
        "parameters": training.parameters,
        "train_examples": training.examples,
        "batch": options.batch,
        "updates": training.validations[-1].updates,
        "best_epoch": training.best.epoch,
        "early_epoch": early.epoch,
        "trained_on": training.gpus or "cpu",
    }
    if options.task == "speech_commands":
        settings["scaling"] = scaling_of(Path(options.data))
    scores = {"test_accuracy": 100.0 * correct / examples, **scores_of(training, options.early_epoch, options.batch)}
    result = make_result(
        options.benchmark,
        options.label,
        scores,
        examples,
        options.command,
        options.seed,
        settings,
        correct=correct,
        train_command=options.train_command.read_text(encoding="utf-8").strip(),
        curve=[found._asdict() for found in training.validations],
    )
    write_result(options.json, result)
    print(f"{options.label}: test accuracy {scores['test_accuracy']:.2f} % ({correct} of {examples})", file=sys.stderr)


def train(arguments: Sequence[str]) -> int:
    """As fairseq-mega-train; the last line says how much memory the process held at most."""
    keep_freed_memory()
    status = console.run("train", arguments)
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
    add = commands.add_parser("test", help="score the best checkpoint and write the result").add_argument
    add("data", help="folder of the data")
    add("--task", required=True, help="fairseq's task")
    add("--path", required=True, help="checkpoint of best validation accuracy")
    add("--log", type=Path, required=True, help="log of the training; test.log is written beside it")
    add("--train-command", type=Path, required=True, help="file that holds the command of the training")
    add("--json", type=Path, required=True, help="result file to write")
    add("--benchmark", default=BENCHMARK, help="name in the result file (default: %(default)s)")
    add("--label", required=True, help="name of the run")
    add("--command", required=True, help="command that started all")
    add("--seed", type=int, required=True, help="of the training")
    add("--batch", type=int, required=True, help="examples of an update")
    add("--test-batch", type=int, required=True, help="examples that are scored at a time")
    add("--early-epoch", type=int, required=True, help="epoch whose validation accuracy is reported too")
    add("--cpu", action="store_true", help="score on the CPU")
    add("--setting", type=parse_setting, action="append", default=[], help="NAME=VALUE to keep in the result file")
    options = parser.parse_args(given)
    try:
        test(options)
    except (OSError, ValueError, RuntimeError, ResultError) as error:
        print(f"lra_results: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
