"""The schedule of the recipes, update by update."""

import pytest

from fairseq_mega.optim.linear_decay import LinearDecayConfig, LinearDecaySchedule
from tests.support import schedules


def schedule(monkeypatch, **options):
    return schedules.build(monkeypatch, LinearDecaySchedule, LinearDecayConfig, **{"max_update": 100, **options})


def rates(monkeypatch, updates, **options):
    """Rates used by updates 1, 2, ...: the one set at the start, then what each step_update leaves."""
    built = schedule(monkeypatch, **options)
    found = [built.optimizer.get_lr()]
    for done in range(1, updates):
        built.step_update(done)
        built.step(epoch=done)
        found.append(built.optimizer.get_lr())
    return found


@pytest.mark.parametrize("power", [1.0, 2.0])
def test_rise_and_fall(monkeypatch, power):
    found = rates(monkeypatch, 101, warmup_updates=20, warmup_power=power, total_num_update=100)
    for n, rate in enumerate(found):
        want = 1e-7 + (1e-3 - 1e-7) * (n / 20) ** power if n <= 20 else 1e-3 * (100 - n) / 80
        assert rate == pytest.approx(want, rel=1e-12, abs=1e-18), f"update {n + 1}"
    assert found[0] == 1e-7 and found[20] == 1e-3 and found[100] == 0.0


@pytest.mark.parametrize("initial", [-1.0, -0.5])
def test_a_negative_first_rate_is_none_given(monkeypatch, initial):
    """The published default, -1: from 0 on with a warm-up, and at the peak at once without."""
    found = rates(monkeypatch, 30, warmup_updates=20, warmup_init_lr=initial)
    assert found[0] == 0.0 and found[10] == pytest.approx(5e-4) and min(found) >= 0.0
    assert rates(monkeypatch, 2, warmup_updates=0, warmup_init_lr=initial)[0] == 1e-3


def test_end_of_training_and_beyond(monkeypatch):
    found = rates(monkeypatch, 15, warmup_updates=0, total_num_update=10, end_learning_rate=1e-5)
    assert found[0] == 1e-3
    assert found[10:] == [1e-5] * 5


def test_total_defaults_to_max_update(monkeypatch):
    assert schedule(monkeypatch, max_update=40).rate(40) == 0.0
    assert schedule(monkeypatch, max_update=40).rate(20) == pytest.approx(5e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lr": [1e-3, 1e-4]}, "--lr .*one learning rate"),
        ({"warmup_updates": -1}, "--warmup-updates -1"),
        ({"warmup_power": 0.0}, "--warmup-power 0"),
        ({"warmup_updates": 10, "total_num_update": 10}, "--total-num-update 10 .* must be above --warmup-updates 10"),
        ({"max_update": 0}, "default: --max-update"),
    ],
)
def test_errors(monkeypatch, options, message):
    with pytest.raises(ValueError, match=message):
        schedule(monkeypatch, **options)
