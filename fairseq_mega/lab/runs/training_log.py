"""The log of a training: its time; of a classifier size, speed, memory and validations; of a language model losses."""

import itertools
import re
import statistics
from pathlib import Path
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence

from fairseq_mega.cli.progress import parse_statistics

CORE_HOURS = "core_hours"  # of a start so far, logged with each interval of the training
RESIDENT = "peak_resident_gib"  # in the last line of a training, see :mod:`fairseq_mega.lab.evaluate.lra_results`
WINDOW, DEVIATIONS = 50, 5.0  # number of updates before, and how many of their deviations a spike exceeds their mean
USED = (  # statistics of updates, and of validations
    *("epoch", "num_updates", "loss", "wpb", "ups", "gb_free", "valid_num_updates", "valid_loss", "valid_accuracy"),
)
_SIZES = {
    "parameters": re.compile(r"num\. shared model params: ([\d,]+)"),  # once in each start
    "examples": re.compile(r"\| train: ([\d,]+) (?:examples|images|clips)\b"),
}
_GPU = re.compile(r"rank\s+(\d+): .*total memory = ([\d.]+) GB ; name = (.*?)\s*$")
Statistics = Mapping[str, float]


class GPU(NamedTuple):
    """The name of a GPU, and its memory in GB."""

    name: str
    memory: float


class Log(NamedTuple):
    """The log of a training with --log-format json; that of several starts is one training.

    The statistics are in the order of the log. Updates that an interruption repeats occur, and are timed, twice.
    """

    sizes: Dict[str, int]  # "parameters" of the model and "examples" of the training set, as far as recorded
    updates: List[Statistics]
    validations: List[Statistics]  # with the ``hours`` up to the last time that was logged before, if there is one
    gpus: Dict[str, GPU]  # by rank
    hours: Optional[float]  # of all starts, validations included; None without a record
    core_hours: Optional[float]  # that the threads of all starts have computed; None where they were not recorded
    resident_gib: Optional[float]  # peak memory of the process

    def positive(self, name: str) -> List[float]:
        """Return a statistic of the logged updates, where it is above 0."""
        return [found[name] for found in self.updates if found.get(name, 0.0) > 0]


def read_log(path: Path) -> Log:
    """Read a file; that of a running training may end within a line."""
    with path.open(encoding="utf-8", errors="replace") as lines:
        return parse_log(lines)


def parse_log(lines: Iterable[str]) -> Log:
    """Read the lines of a log; names of statistics show their kinds, because a --log-file of fairseq has no tags."""
    sizes: Dict[str, int] = {}
    updates: List[Statistics] = []
    validations: List[Statistics] = []
    gpus: Dict[str, GPU] = {}
    earlier = 0.0  # seconds of earlier starts, as fairseq counts "wall" from each
    wall: Optional[float] = None
    cores: List[float] = []  # hours of each start
    resident: Optional[float] = None
    for line in lines:
        for name, pattern in _SIZES.items():
            if match := pattern.search(line):
                sizes[name] = int(match[1].replace(",", ""))
                if name == "parameters":
                    cores.append(0.0)
                    if wall is not None:
                        earlier, wall = earlier + wall, 0.0
        if match := _GPU.search(line):
            gpus[match[1]] = GPU(match[3], float(match[2]))
        found = parse_statistics(line)
        clock = found.get("train_wall" if "train_num_updates" in found else "wall")  # of an epoch, of an interval
        wall = wall if clock is None else float(clock)
        used = {name: float(found[name]) for name in USED if name in found}
        if "valid_num_updates" in used:
            validations.append({**used, **({} if wall is None else {"hours": (earlier + wall) / 3600})})
        elif "num_updates" in used:
            updates.append(used)
        if CORE_HOURS in found and cores:
            cores[-1] = float(found[CORE_HOURS])
        if RESIDENT in found:
            resident = max(resident or 0.0, float(found[RESIDENT]))
    hours = None if wall is None else (earlier + wall) / 3600
    return Log(sizes, updates, validations, gpus, hours, sum(cores) or None, resident)


class Validation(NamedTuple):
    """One validation: accuracy in per cent, loss in bits.

    ``hours`` are those of the training, earlier validations included, at the last time that was logged before it.
    """

    epoch: int
    updates: int
    accuracy: float
    loss: float
    hours: Optional[float] = None


class Training(NamedTuple):
    """A training, as recorded in its log."""

    parameters: int  # of the model
    examples: int  # of the training set
    validations: List[Validation]  # in the order of the updates; of repeated validations after an interruption the last
    updates_per_second: Optional[float]  # median over the logged intervals; None if no interval is long enough
    peak_gib: Optional[float]  # peak memory of any GPU, or of the process on a CPU; None if not recorded
    gpus: List[str]  # their names; empty on a CPU

    @property
    def best(self) -> Validation:
        """Return the validation whose checkpoint is checkpoint_best.pt: the last one with the best accuracy."""
        return max(self.validations, key=lambda found: (found.accuracy, found.updates))

    def after(self, epoch: int) -> Validation:
        """Return the last validation up to the end of an epoch, or the first one if there is none."""
        return [found for found in self.validations if found.epoch <= epoch or found == self.validations[0]][-1]


def read_training(log: Log, name: str = "the log") -> Training:
    """Return the training of a classifier.

    Raises:
        ValueError: naming the log, if it has no validation, or no sizes of the model and the data.
    """
    if not log.validations or len(log.sizes) < 2:
        raise ValueError(f"{name} must be the whole log of a training with --log-format json, validations included")
    validations: Dict[int, Validation] = {}
    for found in log.validations:
        updates, scores = int(found["valid_num_updates"]), (found["valid_accuracy"], found["valid_loss"])
        validations[updates] = Validation(int(found["epoch"]), updates, *scores, found.get("hours"))
    peak, free, speeds = log.resident_gib, log.positive("gb_free"), log.positive("ups")
    if log.gpus and free:
        peak = min(gpu.memory for gpu in log.gpus.values()) - min(free)
    speed = statistics.median(speeds) if speeds else None
    ordered = [validations[updates] for updates in sorted(validations)]
    names = [gpu.name for gpu in log.gpus.values()]
    return Training(log.sizes["parameters"], log.sizes["examples"], ordered, speed, peak, names)


class Update(NamedTuple):
    """An update of a training: tokens read up to it, its own included, and its loss in bits per token."""

    tokens: int
    loss: float


class LossCurve(NamedTuple):
    """A training, as recorded in its log."""

    updates: List[Update]  # every logged update; of repeated updates after an interruption the last
    validations: List[Update]  # the losses of the validation set
    updates_per_second: float  # median over the logged updates
    parameters: int  # of the model


def read_losses(log: Log, name: str = "the log") -> LossCurve:
    """Return the losses of a language model's training with --log-interval 1.

    Raises:
        ValueError: naming the log, if it lacks an update, or holds no validation.
    """
    trained = {int(found["num_updates"]): found for found in log.updates}  # of a repeated update the last
    speeds = log.positive("ups")
    if not log.validations or not speeds or sorted(trained) != list(range(1, len(trained) + 1)):
        raise ValueError(f"{name} lacks a validation, or an update: the curve needs --log-interval 1")
    read = list(itertools.accumulate(round(trained[number]["wpb"]) for number in sorted(trained)))
    updates = [Update(tokens, trained[number]["loss"]) for number, tokens in enumerate(read, 1)]
    validated = {int(found["valid_num_updates"]): found["valid_loss"] for found in log.validations}
    validations = [Update(read[number - 1], loss) for number, loss in sorted(validated.items())]
    return LossCurve(updates, validations, statistics.median(speeds), log.sizes.get("parameters", 0))


def averaged(updates: Sequence[Update], window: int) -> List[Update]:
    """Return the mean losses of ``window`` updates each, at the tokens of the last one; a shorter rest is omitted."""
    whole = [updates[start : start + window] for start in range(0, len(updates) - window + 1, window)]
    return [Update(part[-1].tokens, statistics.fmean(update.loss for update in part)) for part in whole]


def spikes_of(updates: Sequence[Update]) -> List[int]:
    """Return the numbers of the updates, from 1, at which a spike begins: losses far above the updates before.

    A loss is far above if it exceeds the mean of the WINDOW losses before by DEVIATIONS of their standard deviations.
    Losses of a spike are not among the losses before, and neighbours are one spike.
    """
    before: List[float] = []
    found: List[int] = []
    within = False
    for number, update in enumerate(updates, 1):
        recent = before[-WINDOW:]
        high = len(recent) == WINDOW and update.loss > statistics.fmean(recent) + DEVIATIONS * statistics.stdev(recent)
        if high and not within:
            found.append(number)
        within = high
        if not high:
            before.append(update.loss)
    return found
