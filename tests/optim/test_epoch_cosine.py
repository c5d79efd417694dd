"""The schedule of the image classifiers, epoch by epoch."""

import math
import re

import pytest
import torch

from fairseq_mega.optim.epoch_cosine import EpochCosineConfig, EpochCosineSchedule
from tests.support import helpers, schedules
from tests.support.tiny_trainings import numbers


def schedule(monkeypatch, **options):
    values = {"max_epoch": 300, "lr": [2e-3], **options}
    return schedules.build(monkeypatch, EpochCosineSchedule, EpochCosineConfig, **values)


def test_the_published_training(monkeypatch):
    """Rates of all epochs, that of an epoch kept through its updates and its end."""
    built = schedule(monkeypatch)
    assert built.optimizer.get_lr() == 1e-5
    found = []
    for epoch in range(1, 301):
        built.step_begin_epoch(epoch)
        found.append(built.optimizer.get_lr())
        assert built.step_update(7 * epoch) == built.step(epoch, 1.0) == found[-1]
    for e, rate in enumerate(found):
        want = (
            1e-5 + e * (2e-3 - 1e-5) / 20 if e < 20 else 1e-6 + 1.999e-3 / 2 * (1 + math.cos(math.pi * (e - 20) / 300))
        )
        assert rate == pytest.approx(want, rel=1e-12), f"epoch {e}"
    assert found[20] == max(found) == 2e-3
    assert found[299] == pytest.approx(2.5e-5, rel=0.01)


def test_a_period_of_its_own(monkeypatch):
    built = schedule(monkeypatch, warmup_epochs=2, period_epochs=4, max_epoch=0)
    assert built.rate(4) == pytest.approx((2e-3 + 1e-6) / 2)
    assert [built.rate(epoch) for epoch in (6, 7, 50)] == [1e-6] * 3  # it does not rise again


def test_without_a_rise(monkeypatch):
    assert schedule(monkeypatch, warmup_epochs=0).optimizer.get_lr() == 2e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": [1e-3, 1e-4]}, "--lr .*one learning rate"),
        ({"warmup_epochs": -1}, "--warmup-epochs -1 "),
        ({"warmup_init_lr": -1.0}, "--warmup-init-lr -1 "),
        ({"min_lr": -1e-3}, "--min-lr -0.001: "),
        ({"period_epochs": 0}, "--period-epochs 0: must be at least 1"),
        ({"max_epoch": 0}, "--max-epoch 0 must be above --warmup-epochs 20: .*--period-epochs"),
        ({"max_epoch": 20}, "--max-epoch 20 must be above"),
    ],
)
def test_errors(monkeypatch, options, message):
    with pytest.raises(ValueError, match=message):
        schedule(monkeypatch, **options)


def test_a_training_that_goes_on_within_an_epoch(tiny_corpus, tmp_path):
    """Updates of accumulated gradients have their epoch's rate; from a restart in mid-epoch on, with a new peak."""
    arguments = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path, "--lr-scheduler", "epoch_cosine"]
    arguments += ["--warmup-epochs", 2, "--warmup-init-lr", 0.001, "--min-lr", 0.0005, "--max-epoch", 4]
    arguments += ["--update-freq", 2, "--no-epoch-checkpoints"]

    def epochs(printed, peak):
        cosine = 0.0005 + (peak - 0.0005) / 2 * (1 + math.cos(math.pi / 4))
        want = [0.001, (0.001 + peak) / 2, peak, cosine]
        lines = [line for line in numbers(printed, "^(epoch|lr|update)$") if "lr" in line]
        found = [line["epoch"] for line in lines]
        for line in lines:
            assert float(line["lr"]) == pytest.approx(want[line["epoch"] - 1], rel=1e-4), line
        return found

    whole = epochs(helpers.run_fairseq("train", [*arguments, "--no-save"]), 0.005)
    assert sorted(set(whole)) == [1, 2, 3, 4]
    stop = whole.index(2) + 1  # after the first update of epoch 2
    assert whole[stop] == 2
    assert epochs(helpers.run_fairseq("train", [*arguments, "--max-update", stop]), 0.005) == whole[:stop]
    saved = torch.load(tmp_path / "checkpoint_last.pt")["extra_state"]["train_iterator"]
    assert saved["epoch"] == 2 and saved["iterations_in_epoch"] > 0
    printed = helpers.run_fairseq("train", [*arguments, "--lr", 0.007])
    assert re.search(rf"Loaded checkpoint .* \(epoch 2 @ {stop} updates\)", printed)
    assert epochs(printed, 0.007) == whole[stop:]
