"""The log of a training: its time; of a classifier size, speed, memory and validations; of a language model losses."""

import itertools
import re
import statistics
from typing import Dict, Iterable, Iterator, List, NamedTuple, Optional, Sequence, Tuple

from fairseq_mega.cli.progress import parse_statistics

CORE_HOURS = "core_hours"  # of a start so far, logged with each interval of the training
RESIDENT = "peak_resident_gib"  # in the last line of a training, see :mod:`fairseq_mega.lab.evaluate.lra_results`
WINDOW, DEVIATIONS = 50, 5.0  # number of updates before, and how many of their deviations a spike exceeds their mean
_TAG = re.compile(r"\| (valid|train_inner) \| \{")
_EXAMPLES = re.compile(r"\| train: ([\d,]+) (?:examples|images|clips)\b")
_PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
_GPU = re.compile(r"rank\s+(\d+): .*total memory = ([\d.]+) GB ; name = (.*?)\s*$")


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


def timed(lines: Iterable[str]) -> Iterator[Tuple[str, Optional[float]]]:
    """Yield each line of a log with --log-format json, and the hours of all starts up to it; None before a record.

    fairseq counts "wall" in seconds from each start. Updates that an interruption repeats are counted twice.
    """
    earlier, wall = 0.0, None
    for line in lines:
        if _PARAMETERS.search(line):  # once in each start
            earlier, wall = earlier + (wall or 0.0), 0.0 if wall is not None else None
        elif '"wall"' in line or '"train_wall"' in line:
            found = parse_statistics(line)
            key = "train_wall" if "train_num_updates" in found else "wall"  # of an epoch, of an interval
            wall = float(found[key]) if key in found else wall
        yield line, None if wall is None else (earlier + wall) / 3600


def training_hours(lines: Iterable[str]) -> Optional[float]:
    """Return the hours of all starts in a log with --log-format json, validations included; None without a record."""
    return max((hours for _, hours in timed(lines) if hours is not None), default=None)


def core_hours(lines: Iterable[str]) -> Optional[float]:
    """Return the hours that the threads of all starts in a log have computed; None of a log without them."""
    starts: List[float] = []
    for line in lines:
        if _PARAMETERS.search(line):  # once in each start
            starts.append(0.0)
        elif starts and CORE_HOURS in line:
            starts[-1] = float(parse_statistics(line).get(CORE_HOURS, starts[-1]))
    return sum(starts) or None


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def read_training(lines: Iterable[str], name: str = "the log") -> Training:
    """Read the log of ``train``, whose --log-format is json; a log of several starts is one training.

    Raises:
        ValueError: naming the log, if it has no validation, or no sizes of the model and the data.
    """
    sizes: Dict[str, int] = {}
    validations: Dict[int, Validation] = {}
    numbers: Dict[str, List[float]] = {"ups": [], "gb_free": [], RESIDENT: [], "gb": []}
    gpus: Dict[str, str] = {}
    for line, hours in timed(lines):
        found = parse_statistics(line) if _TAG.search(line) or RESIDENT in line else {}
        if "valid_num_updates" in found:
            updates = int(found["valid_num_updates"])
            accuracy, loss = float(found["valid_accuracy"]), float(found["valid_loss"])
            # A start after an interruption repeats the updates after the last checkpoint.
            validations[updates] = Validation(int(found["epoch"]), updates, accuracy, loss, hours)
        elif found:
            for key in ("ups", "gb_free", RESIDENT):
                numbers[key] += [float(found[key])] if float(found.get(key, 0)) > 0 else []
        elif match := _PARAMETERS.search(line):
            sizes["parameters"] = _count(match[1])
        elif match := _EXAMPLES.search(line):
            sizes["examples"] = _count(match[1])
        elif match := _GPU.search(line):
            numbers["gb"].append(float(match[2]))
            gpus[match[1]] = match[3]
    if not validations or len(sizes) < 2:
        raise ValueError(f"{name} must be the whole log of a training with --log-format json, validations included")
    peak = max(numbers[RESIDENT], default=None)
    if numbers["gb"] and numbers["gb_free"]:
        peak = min(numbers["gb"]) - min(numbers["gb_free"])
    speed = statistics.median(numbers["ups"]) if numbers["ups"] else None
    ordered = [validations[updates] for updates in sorted(validations)]
    return Training(sizes["parameters"], sizes["examples"], ordered, speed, peak, list(gpus.values()))


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


def read_losses(lines: Iterable[str], name: str = "the log") -> LossCurve:
    """Read a log of fairseq-train with --log-format json --log-interval 1; a log of several starts is one training.

    Raises:
        ValueError: naming the log, if it lacks an update, or holds no validation.
    """
    trained: Dict[int, Tuple[int, float]] = {}
    validated: Dict[int, float] = {}
    speeds: List[float] = []
    parameters = 0
    for line in lines:
        found = parse_statistics(line)
        if "valid_loss" in found and "valid_num_updates" in found:
            validated[int(found["valid_num_updates"])] = float(found["valid_loss"])
        elif "loss" in found and "wpb" in found:
            trained[int(found["num_updates"])] = round(float(found["wpb"])), float(found["loss"])
            speeds += [float(found["ups"])] if float(found.get("ups", 0)) > 0 else []
        elif match := _PARAMETERS.search(line):
            parameters = _count(match[1])
    if not validated or not speeds or sorted(trained) != list(range(1, len(trained) + 1)):
        raise ValueError(f"{name} lacks a validation, or an update: the curve needs --log-interval 1")
    read = list(itertools.accumulate(trained[number][0] for number in sorted(trained)))
    updates = [Update(tokens, trained[number][1]) for number, tokens in enumerate(read, 1)]
    validations = [Update(read[number - 1], loss) for number, loss in sorted(validated.items())]
    return LossCurve(updates, validations, statistics.median(speeds), parameters)


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
