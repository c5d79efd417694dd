"""The schedule that follows the clock."""

import pytest
import torch

from fairseq_mega.optim import timed_decay
from fairseq_mega.optim.timed_decay import TimedDecayConfig, TimedDecaySchedule
from tests.support import helpers, schedules
from tests.support.tiny_trainings import numbers


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still: its only item is the time in seconds."""
    now = [1e9]
    monkeypatch.setattr(timed_decay.time, "time", lambda: now[0])
    return now


def schedule(monkeypatch, **options):
    values = {"stop_time_hours": 1.0, "warmup_updates": 4, **options}
    return schedules.build(monkeypatch, TimedDecaySchedule, TimedDecayConfig, **values)


def test_rise_by_updates_and_fall_by_time(monkeypatch, clock):
    built = schedule(monkeypatch)
    assert built.optimizer.get_lr() == 0.0
    assert built.step_update(1) == pytest.approx(0.25e-3)
    clock[0] += 36
    assert built.step_update(4) == pytest.approx(0.99e-3)
    clock[0] += 1800 - 36
    assert built.step_update(5) == built.step(epoch=1) == pytest.approx(0.5e-3)
    for past in (1800, 1801):
        clock[0] = 1e9 + 1800 + past
        assert built.step_update(6) == 0.0


def test_a_slow_machine_has_risen_after_a_share_of_the_time(monkeypatch, clock):
    built = schedule(monkeypatch, warmup_updates=1000, warmup_share=0.2)
    clock[0] += 360
    assert built.step_update(1) == pytest.approx(0.9e-3 / 2)
    clock[0] += 360
    assert built.step_update(2) == pytest.approx(0.8e-3)


def test_without_a_rise(monkeypatch, clock):
    assert schedule(monkeypatch, warmup_updates=0).optimizer.get_lr() == 1e-3
    assert schedule(monkeypatch, warmup_share=0.0, warmup_updates=2).step_update(1) == 0.5e-3


def test_the_time_of_earlier_runs_counts(monkeypatch, clock):
    first = schedule(monkeypatch)
    clock[0] += 900
    kept = first.state_dict()
    clock[0] += 5000  # killed, and started again later
    second = schedule(monkeypatch)
    clock[0] += 100  # before the checkpoint is read
    second.load_state_dict(kept)
    assert second.step_update(10) == pytest.approx(0.75e-3)
    clock[0] += 900
    assert second.step_update(11) == pytest.approx(0.5e-3)
    assert second.state_dict()["seconds"] == 1800.0


def test_a_checkpoint_of_another_schedule_begins_anew(monkeypatch, clock):
    built = schedule(monkeypatch)
    built.load_state_dict({"best": None})
    assert built.step_update(10) == 1e-3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": [1e-3, 1e-4]}, "--lr .*one learning rate"),
        ({"stop_time_hours": 0.0}, "--stop-time-hours 0: .*requires the hours"),
        ({"warmup_updates": -1}, "--warmup-updates -1"),
        ({"warmup_share": 1.0}, "--warmup-share 1"),
    ],
)
def test_errors(monkeypatch, options, message):
    with pytest.raises(ValueError, match=message):
        schedule(monkeypatch, **options)


def test_a_training_goes_on_with_the_time_it_has_left(tiny_corpus, tmp_path):
    arguments = [tiny_corpus, *helpers.TINY_TRAINING, "--cpu", "--save-dir", tmp_path, "--lr-scheduler", "timed_decay"]
    arguments += ["--warmup-updates", 2, "--stop-time-hours", 50]
    helpers.run_fairseq("train", [*arguments, "--max-update", 3])
    file = tmp_path / "checkpoint_last.pt"
    checkpoint = torch.load(file)
    state = checkpoint["optimizer_history"][-1]["lr_scheduler_state"]
    assert state["seconds"] > 0
    state["seconds"] += 25 * 3600
    torch.save(checkpoint, file)
    printed = helpers.run_fairseq("train", [*arguments, "--max-update", 6])
    rates = [float(update["lr"]) for update in numbers(printed, "^lr$") if update]
    assert len(rates) == 3 and rates == sorted(rates, reverse=True)
    assert rates == pytest.approx([0.0025] * 3, rel=0.02)


def test_of_several_processes_the_first_ones_clock_counts(monkeypatch, clock):
    def broadcast(shared, source):
        assert source == 0 and shared.dtype == torch.float64
        shared.fill_(1800.0)

    built = schedule(monkeypatch)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "broadcast", broadcast)
    assert built.step_update(10) == 0.5e-3
