"""The plan of the quick start's training, and the training that is started."""

import json
import shlex
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest

from fairseq_mega.compat.features import precision
from fairseq_mega.lab.quickstart import language_model, training, translation
from fairseq_mega.lab.quickstart.options import LM, TRANSLATION, parse
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.command_line import flag
from fairseq_mega.lab.recipes.recipe import preset
from fairseq_mega.lab.reproduce.command import main as reproduce
from fairseq_mega.lab.reproduce.training import chosen_once
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.results import make_result, write_result

TASKS = {TRANSLATION: translation.Translation, LM: language_model.LanguageModel}


def quick_start(folder: Path, *words: str, task: str = TRANSLATION) -> Any:
    """A task in a folder, on the CPU in float32, as it is once the data are there."""
    made = TASKS[task](parse(["--task", task, "--work-dir", str(folder), *words]), "command")
    made.gpus, made.precision = 0, "fp32"
    return made


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> List[List[str]]:
    """The commands that are started: not run, and without a checkpoint therefore."""
    commands: List[List[str]] = []
    monkeypatch.setattr(training, "execute", lambda words, *others: commands.append(list(words)))
    return commands


def begin(made: Any) -> None:
    """Plan and begin a training, which fails."""
    made.plan()
    made.job = made.planned()
    with pytest.raises(StageError, match="ended without a best checkpoint"):
        made.train_planned()


@pytest.mark.parametrize(("elapsed", "minutes"), [(0.5, 15.0), (6.0, 15.0), (9.0, 12.0), (30.0, 6.0)])
def test_a_slow_start_leaves_less_time_to_the_training(
    elapsed: float, minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translation, "elapsed", lambda: 60 * elapsed)
    quick_start(tmp_path).plan()
    assert float((tmp_path / "minutes").read_text()) == pytest.approx(minutes)


@pytest.mark.parametrize(
    ("words", "minutes"),
    [
        ([], 5.0),
        (["--train-minutes", "2.5"], 2.5),
        (["--updates", "7"], 60.0),
        (["--train-minutes", "3", "--updates", "7"], 3.0),
    ],
)
def test_minutes_that_are_given(words: List[str], minutes: float, tmp_path: Path) -> None:
    quick_start(tmp_path, *words, task=LM).plan()
    assert float((tmp_path / "minutes").read_text()) == minutes


def test_a_text_in_another_use_is_another_setting(tmp_path: Path) -> None:
    """The same file as validation text and as test text; the result of one is none of the other."""
    for name in ("t", "v"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} {language}\n" * 2000)
    text, other = ["--text", str(tmp_path / "t")], str(tmp_path / "v")
    quick_start(tmp_path / "out", *text, "--valid", other)
    quick_start(tmp_path / "out", *text, "--valid", other)
    with pytest.raises(StageError, match=r"< valid \w+\n(?s:.*)> test \w+"):
        quick_start(tmp_path / "out", *text, "--test", other)


def test_the_precision_is_chosen_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU is busy at the second start, and seems to be slow at bfloat16: the training goes on as it began."""
    found = iter([precision.Choice("bf16", "fast"), precision.Choice("fp32", "slow")])
    monkeypatch.setattr(precision, "choose", lambda name, device: next(found))
    assert [chosen_once(tmp_path / "precision", "auto", 0) for _ in range(2)] == ["bf16", "bf16"]


def options_in(words: Sequence[str]) -> Dict[str, List[str]]:
    """The options of a line with their values."""
    found: Dict[str, List[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = values = []
        elif found:
            values.append(word)
    return found


@pytest.mark.parametrize("task", TASKS)
def test_the_line_that_is_printed_trains_what_the_quick_start_trains(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce([f"quickstart/{task}", "--print"]) == 0
    printed = options_in(shlex.split(capsys.readouterr().out))
    made = quick_start(tmp_path, "--train-minutes", {TRANSLATION: "15", LM: "5"}[task], task=task)
    (asked,) = printed.pop("--precision")
    made.precision = precision.choose(asked, "cpu").precision
    made.plan()
    started = options_in(made.planned().train_arguments())
    assert {"--amp", "--bf16"} & set(started) == set([] if made.precision == "fp32" else ["--amp", "--bf16"])
    for words in (printed, started):  # --cpu alone changes nothing where no GPU is visible
        for place in ("--save-dir", "--cpu", "--amp", "--bf16", "--user-dir"):
            words.pop(place, None)
        words["--stop-time-hours"] = [f"{float(words['--stop-time-hours'][0]):.6f}"]
    assert printed == started


@pytest.mark.parametrize("task", TASKS)
def test_the_training_is_the_recipe(task: str, tmp_path: Path, started: List[List[str]]) -> None:
    """Every option of it, those of the clock too; the folders apart from it."""
    minutes = {TRANSLATION: "15", LM: "5"}[task]
    begin(quick_start(tmp_path, "--train-minutes", minutes, task=task))
    command, recipe = " ".join(started[0]), catalogue()[f"quickstart/{task}"]
    places: Dict[str, Any] = {"save_dir": tmp_path / "checkpoints"}
    for options in recipe.config.values():
        for option, value in options.items():
            if option not in ("_name", "data"):
                words = " ".join(flag(option, places.get(option, value)))
                assert words.replace("0.08333333333333333", "0.083333") in command, option
    assert f"{tmp_path / 'data-bin'} " in command and f"--arch {recipe.preset} " in command
    assert "--lr-scheduler timed_decay" in command and "--cpu" in command


@pytest.mark.parametrize(
    ("updates", "warmup"), [([], ["timed_decay", "200"]), (["--updates", "100"], ["linear_decay", "25"])]
)
def test_a_number_of_updates_has_a_schedule_of_its_own(
    updates: List[str], warmup: List[str], tmp_path: Path, started: List[List[str]]
) -> None:
    begin(quick_start(tmp_path, "--train-minutes", "30", *updates))
    (command,) = started
    assert [command[command.index(option) + 1] for option in ("--lr-scheduler", "--warmup-updates")] == warmup
    assert command[command.index("--stop-time-hours") + 1] == "0.5"
    assert command[command.index("--max-update") + 1] == (updates[1] if updates else "0")


def test_all_gpus_are_used(tmp_path: Path) -> None:
    made = quick_start(tmp_path)
    made.gpus, made.precision = 3, "bf16"
    made.plan()
    words = made.planned().train_arguments()
    assert words[words.index("--distributed-world-size") + 1] == "3" and words[words.index("--update-freq") + 1] == "1"
    assert {"--amp", "--bf16"} <= set(words) and "--cpu" not in words


def test_the_tiny_form_is_another_folder(tmp_path: Path, started: List[List[str]]) -> None:
    begin(quick_start(tmp_path, "--smoke", task=LM))
    assert started[0][started[0].index("--decoder-embed-dim") + 1] == str(preset("mega_lm_tiny")["decoder_embed_dim"])
    with pytest.raises(StageError, match="was begun with other settings"):
        quick_start(tmp_path, task=LM)


@pytest.mark.parametrize(
    ("minutes", "done", "updates", "told"),
    [
        ("11.5", 600, [], "--train-minutes 23 "),
        ("1", 100, [], "--train-minutes 10 "),
        ("11.5", 1000, [], None),
        ("11.5", 9, ["--updates", "9"], None),
    ],
)
def test_too_few_updates_are_told(
    minutes: str,
    done: int,
    updates: List[str],
    told: Optional[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    made = quick_start(tmp_path, "--train-minutes", minutes, *updates)
    made.plan()
    made.job = made.planned()

    def run(words: Sequence[str], log: Path, variables: Any, progress: Any) -> None:
        progress.read(json.dumps({"loss": "3.1", "num_updates": str(done)}))
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "checkpoint_best.pt").touch()

    monkeypatch.setattr(training, "execute", run)
    made.train_planned()
    said = capsys.readouterr().err
    assert "--train-minutes" not in said if told is None else told in said


@pytest.mark.parametrize(("score", "updates", "told"), [(3.9, None, True), (16.5, None, False), (3.9, "20", False)])
def test_a_model_that_has_not_learned_is_named(
    score: float,
    updates: Optional[str],
    told: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    made = quick_start(tmp_path, "--train-minutes", "14.54", *(["--updates", updates] if updates else []))
    made.plan()
    made.job, made.checkpoint = made.planned(), tmp_path / "checkpoint_best.pt"
    monkeypatch.setattr(made, "_show_examples", lambda typing: None)
    write_result(tmp_path / "result.json", make_result("translation", "quickstart", {"sacrebleu": score}, 1080, ""))
    made.show()
    said = capsys.readouterr().err
    assert ("--train-minutes 30" in said) == told
