"""The plan of the quick start's training."""

import json
from pathlib import Path
from typing import Optional, Sequence

import pytest

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.quickstart import training, translation
from fairseq_mega.lab.quickstart.hyper_parameters import recipe_of
from fairseq_mega.lab.quickstart.options import parse
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.folder import Work
from fairseq_mega.lab.runs.log_progress import Progress
from fairseq_mega.lab.runs.results import make_result, write_result


@pytest.mark.parametrize(("elapsed", "minutes"), [(0.5, 15.0), (6.0, 15.0), (9.0, 12.0), (30.0, 6.0)])
def test_a_slow_start_leaves_less_time_to_the_training(
    elapsed: float, minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is planned keeps its plan: the marker of the stage is what a second start looks at."""
    monkeypatch.setattr(translation, "elapsed", lambda: 60 * elapsed)
    translation.Translation(parse(["--work-dir", str(tmp_path)]), "bash scripts/quickstart.sh").plan()
    assert float((tmp_path / "minutes").read_text()) == pytest.approx(minutes)


@pytest.mark.parametrize(
    ("given", "updates", "minutes"), [(None, None, 9.0), ("2.5", None, 2.5), (None, "7", 60.0), ("3", "7", 3.0)]
)
def test_minutes_that_are_given(given: str, updates: str, minutes: float, tmp_path: Path) -> None:
    training.plan_minutes(Work(tmp_path, [], "--out"), given, updates, 9.0)
    assert float((tmp_path / "minutes").read_text()) == minutes


def test_the_precision_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is busy at the second start, and seems to be slow at bfloat16: the training goes on as it began."""
    work = Work(tmp_path, [], "--out")
    found = iter([precision.Choice("bf16", "fast"), precision.Choice("fp32", "slow")])
    monkeypatch.setattr(precision, "choose", lambda name, device: next(found))
    assert [training.precision_of(work, "auto", ["--cpu"]) for _ in range(2)] == ["bf16", "bf16"]


@pytest.mark.parametrize(("updates", "schedule"), [(None, "timed_decay"), ("100", "linear_decay")])
def test_the_training_that_is_started(
    updates: str, schedule: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, started = Work(tmp_path, [], "--out"), []
    training.plan_minutes(work, "30", updates, 9.0)
    monkeypatch.setattr(work, "run", lambda name, command, progress: started.append([str(part) for part in command]))
    with pytest.raises(StageError, match="ended without a checkpoint"):
        training.train(work, recipe_of("translation", smoke=False), ["--cpu"], updates, 10)
    (command,) = started
    assert command[:2] == ["fairseq-mega-train", str(tmp_path / "data-bin")] and "--cpu" in command
    assert command[command.index("--lr-scheduler") + 1] == schedule
    assert command[command.index("--stop-time-hours") + 1] == "0.5"
    assert command[command.index("--warmup-updates") + 1] == ("25" if updates else "200")


@pytest.mark.parametrize(("done", "updates", "told"), [(9, None, True), (10, None, False), (9, "9", False)])
def test_too_few_updates_are_told(
    done: int,
    updates: Optional[str],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    work = Work(tmp_path, [], "--out")
    training.plan_minutes(work, "11.5", updates, 9.0)

    def run(name: str, command: Sequence[object], progress: Progress) -> None:
        progress.read(json.dumps({"loss": "3.1", "num_updates": str(done)}))
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "checkpoint_best.pt").touch()

    monkeypatch.setattr(work, "run", run)
    training.train(work, recipe_of("translation", smoke=False), ["--cpu"], updates, 10)
    said = capsys.readouterr().err
    assert (f"only {done} updates in 11.5 minutes" in said and "--train-minutes 24 or more" in said) == told


@pytest.mark.parametrize(("score", "updates", "told"), [(3.9, None, True), (16.5, None, False), (3.9, "20", False)])
def test_a_model_that_has_not_learned_is_told_of(
    score: float,
    updates: Optional[str],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    made = translation.Translation(parse(["--work-dir", str(tmp_path)]), "bash scripts/quickstart.sh")
    made.updates, made.device = updates, []
    monkeypatch.setattr(made, "_show_examples", lambda typing: None)
    (tmp_path / "minutes").write_text("14.54\n")
    write_result(tmp_path / "result.json", make_result("translation", "quickstart", {"sacrebleu": score}, 1080, ""))
    made.show()
    said = capsys.readouterr().err
    assert ("3.9 BLEU: the model has not learned yet" in said and "--train-minutes 30 or more" in said) == told
