"""The losses of a language model's training from its log, and their spikes."""

import json
from typing import Any, List

import pytest

from fairseq_mega.lab.runs.training_log import WINDOW, Update, averaged, parse_log, read_losses, spikes_of

SIZE = "2030-01-01 | INFO | fairseq_cli.train | num. shared model params: 1,234 (num. trained: 1,234)\n"


def trained(update: int, loss: float, tokens: float = 100.0, speed: float = 4.0) -> str:
    found = {"epoch": 1, "loss": f"{loss}", "wpb": f"{tokens}", "ups": f"{speed}", "num_updates": f"{update}"}
    return f"2030-01-01 | INFO | train_inner | {json.dumps(found)}\n"


def validated(update: int, loss: float) -> str:
    found = {"epoch": 1, "valid_loss": f"{loss}", "valid_wpb": "7", "valid_num_updates": f"{update}"}
    return f"2030-01-01 | INFO | valid | {json.dumps(found)}\n"


def test_losses_stand_at_the_tokens_read_up_to_them() -> None:
    log = [SIZE, trained(1, 8.0), trained(2, 7.0, 60.4, 5.0), validated(2, 7.5), trained(3, 6.0, speed=6.0), "{\n"]
    found = read_losses(parse_log(log))
    assert found.updates == [Update(100, 8.0), Update(160, 7.0), Update(260, 6.0)]
    assert found.validations == [Update(160, 7.5)]
    assert (found.updates_per_second, found.parameters) == (5.0, 1234)


def test_what_an_interruption_repeats_counts_once() -> None:
    log = [trained(1, 8.0), trained(2, 7.0), validated(2, 7.5), trained(2, 6.9), validated(2, 7.4), trained(3, 6.0)]
    found = read_losses(parse_log(log))
    assert found.updates == [Update(100, 8.0), Update(200, 6.9), Update(300, 6.0)]
    assert found.validations == [Update(200, 7.4)]


@pytest.mark.parametrize(
    "log",
    [
        [trained(1, 8.0), trained(2, 7.0)],
        [trained(2, 8.0), trained(4, 7.0), validated(4, 7.5)],
        [trained(1, 8.0), trained(3, 7.0), validated(3, 7.5)],
    ],
)
def test_a_log_with_gaps_is_refused(log: List[str]) -> None:
    with pytest.raises(ValueError, match="train.log"):
        read_losses(parse_log(log), "train.log")


def test_means_of_updates_stand_at_the_last_of_them() -> None:
    updates = [Update(10 * (number + 1), float(number)) for number in range(7)]
    assert averaged(updates, 3) == [Update(30, 1.0), Update(60, 4.0)]
    assert averaged(updates, 1) == updates


def losses(*changed: Any) -> List[Update]:
    """A noisy level of 2.0 to 2.1, but for (place, loss) pairs."""
    found = [2.0 + 0.1 * (number % 2) for number in range(3 * WINDOW)]
    for place, loss in changed:
        found[place] = loss
    return [Update(number, loss) for number, loss in enumerate(found)]


def test_spikes_are_far_above_the_updates_before() -> None:
    assert spikes_of(losses()) == []
    assert spikes_of(losses((WINDOW, 2.2))) == []  # three deviations
    assert spikes_of(losses((WINDOW, 2.5))) == [WINDOW + 1]
    assert spikes_of(losses((WINDOW - 1, 2.5))) == []  # with too few updates before it
    assert spikes_of(losses((WINDOW, 1.0))) == []
    assert spikes_of(losses((WINDOW, 3.0), (WINDOW + 1, 2.8), (WINDOW + 5, 2.6))) == [WINDOW + 1, WINDOW + 6]


def test_a_spike_does_not_hide_the_next_one() -> None:
    """The losses of a spike would raise the deviation of those before the next."""
    assert spikes_of(losses((WINDOW, 50.0), (WINDOW + 9, 2.5))) == [WINDOW + 1, WINDOW + 10]
