"""The quick start: the plan of its training, the training that is started, and a second start."""

import shlex
from pathlib import Path
from typing import Any, Dict, List, Sequence

import pytest

from fairseq_mega.lab.quickstart import command
from fairseq_mega.lab.quickstart.options import LM, TRAIN_MINUTES, TRANSLATION, parse
from fairseq_mega.lab.recipes.recipe import preset
from fairseq_mega.lab.reproduce.command import main as reproduce
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.stages import check_settings


def options_of(folder: Path, *words: str, task: str = TRANSLATION) -> Any:
    """Options of a task in a folder."""
    return parse(["--task", task, "--work-dir", str(folder), *words])


def begin(options: Any) -> None:
    """Write or compare the settings of a folder."""
    check_settings(options.work_dir, command.settings(options, command.requested(options)), "--work-dir")


def started(options: Any, gpus: int = 0, precision: str = "fp32") -> List[str]:
    """Arguments of the training."""
    return command.planned(options, command.requested(options), gpus, precision).train_arguments()


def test_minutes_of_the_training(tmp_path: Path) -> None:
    given = ["--train-minutes", "2.5"]
    for words, minutes in ([], 5.0), (given, 2.5), (["--updates", "7"], 60.0), ([*given, "--updates", "7"], 2.5):
        found = command.minutes_of(command.requested(options_of(tmp_path, *words, task=LM)))
        assert found == pytest.approx(minutes)
    for task, minutes in TRAIN_MINUTES.items():  # which --help names
        found = command.minutes_of(command.requested(options_of(tmp_path, task=task)))
        assert found == pytest.approx(minutes)


def test_a_text_in_another_use_is_another_setting(tmp_path: Path) -> None:
    """The same file as validation text and as test text; the result of one is none of the other."""
    for name in ("t", "v"):
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text(f"{name} {language}\n" * 2000)
    text, other = ["--text", str(tmp_path / "t")], str(tmp_path / "v")
    begin(options_of(tmp_path / "out", *text, "--valid", other))
    begin(options_of(tmp_path / "out", *text, "--valid", other))
    with pytest.raises(StageError, match=r"< valid \w+\n(?s:.*)> test \w+"):
        begin(options_of(tmp_path / "out", *text, "--test", other))


def test_the_languages_are_those_of_the_text(tmp_path: Path) -> None:
    for language in ("en", "fr"):
        (tmp_path / f"t.{language}").touch()
    options = options_of(tmp_path / "out", "--text", str(tmp_path / "t"), "--target-lang", "fr")
    words = options_in(started(options))
    assert words["--source-lang"] == ["en"] and words["--target-lang"] == ["fr"]
    data = command.data_words(options, command.requested(options))
    assert data[:5] == ["own-pairs", "--text", str(tmp_path / "t"), "--source-lang", "en"]
    assert data[5:] == ["--target-lang", "fr", "--vocab-size", "4000"]


def options_in(words: Sequence[str]) -> Dict[str, List[str]]:
    """The options of a line with their values."""
    found: Dict[str, List[str]] = {}
    for word in words:
        if word.startswith("--"):
            found[word] = values = []
        elif found:
            values.append(word)
    return found


@pytest.mark.parametrize("task", TRAIN_MINUTES)
def test_the_line_that_is_printed_trains_what_the_quick_start_trains(
    task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert reproduce([f"quickstart/{task}", "--print"]) == 0
    printed = options_in(shlex.split(capsys.readouterr().out))
    printed.pop("--precision")
    trained = options_in(started(options_of(tmp_path, task=task)))
    for words in (printed, trained):  # --cpu alone changes nothing where no GPU is visible
        for place in ("--save-dir", "--cpu", "--user-dir"):
            words.pop(place, None)
        words["--stop-time-hours"] = [f"{float(words['--stop-time-hours'][0]):.6f}"]
    assert printed == trained


def test_a_number_of_updates_has_a_schedule_of_its_own(tmp_path: Path) -> None:
    words = started(options_of(tmp_path, "--train-minutes", "30", "--updates", "100"))
    options = ("--lr-scheduler", "--warmup-updates", "--stop-time-hours", "--max-update")
    assert [words[words.index(option) + 1] for option in options] == ["linear_decay", "25", "0.5", "100"]


def test_all_gpus_are_used(tmp_path: Path) -> None:
    words = started(options_of(tmp_path), 3, "bf16")
    assert words[words.index("--distributed-world-size") + 1] == "3" and words[words.index("--update-freq") + 1] == "1"
    assert {"--amp", "--bf16"} <= set(words) and "--cpu" not in words


def test_the_tiny_form_is_another_folder(tmp_path: Path) -> None:
    tiny = options_of(tmp_path, "--smoke", task=LM)
    words = started(tiny)
    assert words[words.index("--decoder-embed-dim") + 1] == str(preset("mega_lm_tiny")["decoder_embed_dim"])
    begin(tiny)
    with pytest.raises(StageError, match="was begun with other settings"):
        begin(options_of(tmp_path, task=LM))


def test_a_folder_is_locked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second quick start waits; it would move the unfinished files of the first."""
    found: List[str] = []
    monkeypatch.setattr(command, "start", lambda *given: found.append((tmp_path / "run.lock").read_text()))
    assert command.main(["--task", "lm", "--work-dir", str(tmp_path), "--cpu", "--smoke"]) == 0
    assert len(found) == 1 and found[0]


def test_time_that_would_be_no_limit(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        parse(["--train-minutes", "0.004", "--work-dir", str(tmp_path / "made")])
    assert not (tmp_path / "made").exists()


def test_the_data_are_the_recipes_or_of_the_text(tmp_path: Path) -> None:
    (tmp_path / "my.txt").write_text("a line\n" * 1000)
    text = ["--text", str(tmp_path / "my.txt")]
    for given, words in (
        ([], ["gcide", "--limit", "6000000", "--held-out", "0.016667"]),
        (["--smoke"], ["gcide", "--limit", "40000", "--held-out", "0.050000"]),
        (text, ["text-lm", "--unit", "bytes", "--train", text[1], "--limit", "7000", "--held-out", "0.050000"]),
    ):
        options = options_of(tmp_path / "out", *given, task=LM)
        assert command.data_words(options, command.requested(options)) == words
