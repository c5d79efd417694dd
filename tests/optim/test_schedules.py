"""Learning-rate schedules, update by update, epoch by epoch, and by the clock."""

import math
import re
from typing import Optional

import pytest
import torch
from fairseq.optim.lr_scheduler import fairseq_lr_scheduler

from fairseq_mega.optim import schedules
from tests.support import helpers
from tests.support.tiny_trainings import numbers


class Optimizer:
    """Stands for fairseq's optimiser, and only remembers its rate."""

    lr: Optional[float] = None
    params = [torch.zeros(1)]

    def set_lr(self, lr: float) -> None:
        self.lr = lr

    def get_lr(self) -> Optional[float]:
        return self.lr


@pytest.fixture(autouse=True)
def stand_in(monkeypatch):
    monkeypatch.setattr(fairseq_lr_scheduler, "FairseqOptimizer", (Optimizer, fairseq_lr_scheduler.FairseqOptimizer))


def linear(**options):
    return schedules.LinearDecaySchedule(
        schedules.LinearDecayConfig(**{"lr": [1e-3], "max_update": 100, **options}), Optimizer()
    )


def cosine(**options):
    return schedules.EpochCosineSchedule(
        schedules.EpochCosineConfig(**{"lr": [2e-3], "max_epoch": 300, **options}), Optimizer()
    )


def timed(**options):
    values = {"lr": [1e-3], "stop_time_hours": 1.0, "warmup_updates": 4, **options}
    return schedules.TimedDecaySchedule(schedules.TimedDecayConfig(**values), Optimizer())


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (linear, {"max_update": 0}),
        (cosine, {"max_epoch": 20}),
    ],
)
def test_a_rise_without_a_fall_is_refused(build, options):
    with pytest.raises(ValueError, match="warmup"):
        build(**options)


def rates(updates, **options):
    """Rates used by updates 1, 2, ...: the one set at the start, then what each step_update leaves."""
    built = linear(**options)
    found = [built.optimizer.get_lr()]
    for done in range(1, updates):
        built.step_update(done)
        built.step(epoch=done)
        found.append(built.optimizer.get_lr())
    return found


def test_rise_and_linear_fall():
    found = rates(101, warmup_updates=20, warmup_power=2.0, total_num_update=100)
    for n, rate in enumerate(found):
        want = 1e-7 + (1e-3 - 1e-7) * (n / 20) ** 2 if n <= 20 else 1e-3 * (100 - n) / 80
        assert rate == pytest.approx(want, rel=1e-12, abs=1e-18), f"update {n + 1}"
    assert found[0] == 1e-7 and found[20] == 1e-3 and found[100] == 0.0
    ends = rates(15, warmup_updates=0, total_num_update=10, end_learning_rate=1e-5)
    assert ends[0] == 1e-3 and ends[10:] == [1e-5] * 5
    assert linear(max_update=40).rate(20) == pytest.approx(5e-4)  # the default of the total


def test_a_negative_first_rate_is_0():
    """The published default, -1: from 0 on with a warm-up, and at the peak at once without."""
    found = rates(30, warmup_updates=20, warmup_init_lr=-1.0)
    assert found[0] == 0.0 and found[10] == pytest.approx(5e-4) and min(found) >= 0.0
    assert rates(2, warmup_updates=0, warmup_init_lr=-1.0)[0] == 1e-3


def test_the_published_epochs():
    """Rates of all epochs, that of an epoch kept through its updates and its end."""
    built = cosine()
    assert built.optimizer.get_lr() == 1e-5
    found = []
    for epoch in range(1, 301):
        built.step_begin_epoch(epoch)
        found.append(built.optimizer.get_lr())
        assert built.step_update(7 * epoch) == built.step(epoch, 1.0) == found[-1]
    for e, rate in enumerate(found):
        fall = 1e-6 + 1.999e-3 / 2 * (1 + math.cos(math.pi * (e - 20) / 300))
        assert rate == pytest.approx(1e-5 + e * (2e-3 - 1e-5) / 20 if e < 20 else fall, rel=1e-12), f"epoch {e}"
    assert found[20] == max(found) == 2e-3 and found[299] == pytest.approx(2.5e-5, rel=0.01)
    short = cosine(warmup_epochs=2, period_epochs=4, max_epoch=0)
    assert short.rate(4) == pytest.approx((2e-3 + 1e-6) / 2)
    assert [short.rate(epoch) for epoch in (6, 7, 50)] == [1e-6] * 3  # it does not rise again
    assert cosine(warmup_epochs=0).optimizer.get_lr() == 2e-3


def test_a_training_by_epochs_goes_on_within_one(tiny_corpus, tmp_path):
    """Updates of accumulated gradients have their epoch's rate; from a restart in mid-epoch on, with a new peak."""
    arguments = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path, "--lr-scheduler", "epoch_cosine"]
    arguments += ["--warmup-epochs", 2, "--warmup-init-lr", 0.001, "--min-lr", 0.0005, "--max-epoch", 4]
    arguments += ["--update-freq", 2, "--no-epoch-checkpoints"]

    def epochs(printed, peak):
        fallen = 0.0005 + (peak - 0.0005) / 2 * (1 + math.cos(math.pi / 4))
        want = [0.001, (0.001 + peak) / 2, peak, fallen]
        lines = [line for line in numbers(printed, "^(epoch|lr|update)$") if "lr" in line]
        for line in lines:
            assert float(line["lr"]) == pytest.approx(want[line["epoch"] - 1], rel=1e-4), line
        return [line["epoch"] for line in lines]

    whole = epochs(helpers.run_fairseq("train", [*arguments, "--no-save"]), 0.005)
    assert sorted(set(whole)) == [1, 2, 3, 4]
    stop = whole.index(2) + 1  # after the first update of epoch 2
    assert epochs(helpers.run_fairseq("train", [*arguments, "--max-update", stop]), 0.005) == whole[:stop]
    printed = helpers.run_fairseq("train", [*arguments, "--lr", 0.007])
    assert re.search(rf"Loaded checkpoint .* \(epoch 2 @ {stop} updates\)", printed)
    assert epochs(printed, 0.007) == whole[stop:]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still: its only item is the time in seconds."""
    now = [1e9]
    monkeypatch.setattr(schedules.time, "time", lambda: now[0])
    return now


def test_rise_by_updates_and_fall_by_time(clock):
    built = timed()
    assert built.optimizer.get_lr() == 0.0
    assert built.step_update(1) == pytest.approx(0.25e-3)
    clock[0] += 36
    assert built.step_update(4) == pytest.approx(0.99e-3)
    clock[0] += 1800 - 36
    assert built.step_update(5) == built.step(epoch=1) == pytest.approx(0.5e-3)
    clock[0] += 1801
    assert built.step_update(6) == 0.0
    assert timed(warmup_updates=0).optimizer.get_lr() == 1e-3


def test_a_slow_machine_has_risen_after_a_share_of_the_time(clock):
    built = timed(warmup_updates=1000, warmup_share=0.2)
    clock[0] += 360
    assert built.step_update(1) == pytest.approx(0.9e-3 / 2)
    clock[0] += 360
    assert built.step_update(2) == pytest.approx(0.8e-3)


def test_the_time_of_earlier_runs_counts(clock):
    first = timed()
    clock[0] += 900
    kept = first.state_dict()
    clock[0] += 5000  # killed, and started again later
    second = timed()
    clock[0] += 100  # before the checkpoint is read
    second.load_state_dict(kept)
    assert second.step_update(10) == pytest.approx(0.75e-3)
    clock[0] += 900
    assert second.step_update(11) == pytest.approx(0.5e-3)
    assert second.state_dict()["seconds"] == 1800.0
    second.load_state_dict({"best": None})  # of another schedule
    assert second.step_update(10) == 1e-3


def test_of_several_processes_the_first_ones_clock_counts(monkeypatch, clock):
    def broadcast(shared, source):
        assert source == 0 and shared.dtype == torch.float64
        shared.fill_(1800.0)

    built = timed()
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    assert built.step_update(10) == 0.5e-3
