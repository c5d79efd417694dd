"""The quick start's work folder and the plan of its training."""

import sys
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.compat import precision
from fairseq_mega.quickstart import training
from fairseq_mega.quickstart.options import parse
from fairseq_mega.quickstart.translation import Translation
from fairseq_mega.quickstart.work import Failed, Work


def test_a_stage_is_done_once_and_only_when_it_succeeds(tmp_path: Path) -> None:
    done: List[str] = []

    def make() -> None:
        done.append("made")
        if len(done) == 1:
            raise Failed("the first time")

    work = Work(tmp_path, ["a setting"])
    with pytest.raises(Failed):
        work.stage("make", make)
    Work(tmp_path, ["a setting"]).stage("make", make)
    work.stage("make", make)
    assert done == ["made", "made"]
    with pytest.raises(Failed, match="begun with other settings(.|\n)*< a setting\n> another"):
        Work(tmp_path, ["another"])


def test_a_command_that_fails_shows_its_last_lines(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    work = Work(tmp_path / "with space", [])
    program = "import sys; print('\\n'.join(map(str, range(50)))); sys.exit(3)"
    with pytest.raises(Failed, match="failed; its whole output is in .*with space/logs/one.log"):
        work.run("one", [sys.executable, "-c", program])
    shown = capsys.readouterr().err.splitlines()
    assert shown[1:3] == ["30", "31"] and shown[-2:] == ["49", "---"]


def test_an_interrupt_ends_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    work = Work(tmp_path, [])
    monkeypatch.setattr(work, "_copy", interrupt)
    with pytest.raises(KeyboardInterrupt):  # after a moment, not after the ten minutes that the command takes
        work.run("sleep", [sys.executable, "-c", "import time; time.sleep(600)"])


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(Failed, match="--work-dir .* cannot be made"):
        Work(tmp_path / "file" / "work", [])


@pytest.mark.parametrize(("elapsed", "minutes"), [(0.5, 15.0), (6.0, 15.0), (9.0, 12.0), (30.0, 6.0)])
def test_a_slow_start_leaves_less_time_to_the_training(
    elapsed: float, minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is planned keeps its plan: the marker of the stage is what a second start looks at."""
    translation = Translation(parse(["--work-dir", str(tmp_path)]), "bash scripts/quickstart.sh")
    monkeypatch.setattr(Work, "seconds", lambda self: 60 * elapsed)
    translation.plan()
    assert float((tmp_path / "minutes").read_text()) == pytest.approx(minutes)


@pytest.mark.parametrize(
    ("given", "updates", "minutes"), [(None, None, 9.0), ("2.5", None, 2.5), (None, "7", 60.0), ("3", "7", 3.0)]
)
def test_minutes_that_are_given(given: str, updates: str, minutes: float, tmp_path: Path) -> None:
    training.plan_minutes(Work(tmp_path, []), given, updates, 9.0)
    assert float((tmp_path / "minutes").read_text()) == minutes


def test_the_precision_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is busy at the second start, and seems to be slow at bfloat16: the training goes on as it began."""
    work = Work(tmp_path, [])
    found = iter([precision.Choice("bf16", "fast"), precision.Choice("fp32", "slow")])
    monkeypatch.setattr(precision, "choose", lambda name, device: next(found))
    assert [training.precision_of(work, "auto", ["--cpu"]) for _ in range(2)] == ["bf16", "bf16"]


@pytest.mark.parametrize(("updates", "schedule"), [(None, "timed_decay"), ("100", "linear_decay")])
def test_the_training_that_is_started(
    updates: str, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, started = Work(tmp_path, []), []
    training.plan_minutes(work, "30", updates, 9.0)
    monkeypatch.setattr(work, "run", lambda name, command, progress: started.append([str(part) for part in command]))
    with pytest.raises(Failed, match="ended without a checkpoint"):
        training.train(work, ["fairseq-mega-train"], 200, 300, updates)
    (command,) = started
    assert command[command.index("--lr-scheduler") + 1] == schedule
    assert command[command.index("--stop-time-hours") + 1] == "0.500000"
    assert command[command.index("--warmup-updates") + 1] == ("25" if updates else "200")
