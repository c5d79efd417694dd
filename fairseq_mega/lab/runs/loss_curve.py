"""The losses of a language model's training by tokens read, from its log, and their spikes."""

import re
import statistics
from typing import Dict, Iterable, List, NamedTuple, Sequence

from fairseq_mega.lab.runs.log_progress import parse_statistics

PARAMETERS = re.compile(r"num\. shared model params: ([\d,]+)")
WINDOW, DEVIATIONS = 50, 5.0  # number of updates before, and how many of their deviations a spike exceeds their mean


class Update(NamedTuple):
    """An update of a training: tokens read up to it, its own included, and its loss in bits per token."""

    tokens: int
    loss: float


class LossCurve(NamedTuple):
    """A training, as recorded in its log.

    Attributes:
        updates: every logged update; of repeated updates after an interruption the last.
        validations: the losses of the validation set.
        updates_per_second: median over the logged updates.
        parameters: of the model.
    """

    updates: List[Update]
    validations: List[Update]
    updates_per_second: float
    parameters: int


def read_losses(lines: Iterable[str], name: str = "the log") -> LossCurve:
    """Read a log of fairseq-train with --log-format json --log-interval 1; a log of several starts is one training.

    Raises:
        ValueError: naming the log, if it lacks an update, or holds no validation.
    """
    trained: Dict[int, Update] = {}
    validated: Dict[int, float] = {}
    speeds: List[float] = []
    parameters = 0
    for line in lines:
        found = parse_statistics(line)
        if "valid_loss" in found and "valid_num_updates" in found:
            validated[int(found["valid_num_updates"])] = float(found["valid_loss"])
        elif "loss" in found and "wpb" in found:
            trained[int(found["num_updates"])] = Update(round(float(found["wpb"])), float(found["loss"]))
            speeds += [float(found["ups"])] if float(found.get("ups", 0)) > 0 else []
        elif match := PARAMETERS.search(line):
            parameters = int(match[1].replace(",", ""))
    if not validated or not speeds or sorted(trained) != list(range(1, len(trained) + 1)):
        lacking = "an update: give --log-interval 1" if validated else "a validation"
        raise ValueError(f"{name} lacks {lacking}, and the curve needs every loss of the training")
    tokens, updates = 0, []
    for number in sorted(trained):
        tokens += trained[number].tokens
        updates.append(Update(tokens, trained[number].loss))
    validations = [Update(updates[number - 1].tokens, loss) for number, loss in sorted(validated.items())]
    return LossCurve(updates, validations, statistics.median(speeds), parameters)


def averaged(updates: Sequence[Update], window: int) -> List[Update]:
    """Return the mean losses of ``window`` updates each, at the tokens of the last one; a shorter rest is left out."""
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
