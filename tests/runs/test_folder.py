"""A work folder: stages, settings, and commands that fail or are interrupted."""

import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.lab.runs import commands
from fairseq_mega.lab.runs.commands import StageError
from fairseq_mega.lab.runs.files import written_whole
from fairseq_mega.lab.runs.stages import check_settings, stage


def test_a_stage_is_done_once_and_only_when_it_succeeds(tmp_path: Path) -> None:
    done: List[str] = []

    def make() -> None:
        done.append("made")
        if len(done) == 1:
            raise StageError("the first time")

    with pytest.raises(StageError):
        stage(tmp_path, "make", make)
    stage(tmp_path, "make", make)
    stage(tmp_path, "make", make)
    assert done == ["made", "made"]


def test_a_folder_has_the_settings_it_was_begun_with(tmp_path: Path) -> None:
    for _ in range(2):
        check_settings(tmp_path, ["a setting", "one more"], "--out")
    with pytest.raises(StageError, match="begun with other settings(.|\n)*< a setting\n> another\ngive"):
        check_settings(tmp_path, ["another", "one more"], "--out")


def test_a_file_is_whole_or_not_there(tmp_path: Path) -> None:
    path = tmp_path / "made" / "file"
    with pytest.raises(StageError), written_whole(path) as partial:
        partial.write_text("half")
        raise StageError("an interruption")
    assert not path.exists()
    with written_whole(path) as partial:
        partial.write_text("whole")
    assert path.read_text() == "whole"


def test_a_command_that_fails_shows_its_last_lines(tmp_path: Path) -> None:
    program = "import sys; print('\\n'.join(map(str, range(50)))); sys.exit(3)"
    with pytest.raises(StageError, match="ended with status 3; the end of .*with space/one.log") as failed:
        commands.execute([sys.executable, "-c", program], tmp_path / "with space" / "one.log", {})
    shown = str(failed.value).splitlines()
    assert [shown[1], shown[-2]] == ["  30", "  49"] and "continue from here" in shown[-1]


def test_an_interrupt_ends_what_the_command_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    number = tmp_path / "number"

    def interrupt(*_: object) -> None:
        while not number.exists() or not number.read_text().endswith("\n"):
            time.sleep(0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "copy_with_progress", interrupt)
    program = f"sleep 600 & echo $! >'{number}'; wait"
    with pytest.raises(KeyboardInterrupt):
        commands.run_command(["sh", "-c", program], tmp_path / "log", own_group=True)
    wait_for_the_end_of(int(number.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a process with the one that started it")
def test_a_command_ends_with_a_runner_that_is_killed(tmp_path: Path) -> None:
    """A training that went on without a reader of its log would be taken for one that never validated."""
    number = tmp_path / "number"
    program = (
        "import sys; from pathlib import Path; from fairseq_mega.lab.runs.commands import run_command; "
        "run_command(['sh', '-c', f'echo $$ > {sys.argv[1]}; sleep 600; true'], Path(sys.argv[1] + '.log'))"
    )
    with subprocess.Popen([sys.executable, "-c", program, str(number)], env=commands.environment({})) as runner:
        while not number.exists() or not number.read_text().endswith("\n"):
            assert runner.poll() is None
            time.sleep(0.01)
        runner.kill()
    wait_for_the_end_of(int(number.read_text()))


def wait_for_the_end_of(process: int) -> None:
    state = Path(f"/proc/{process}/stat")
    begun = time.monotonic()
    while state.exists() and state.read_text().split()[2] != "Z":  # its end takes a moment
        assert time.monotonic() - begun < 60
        time.sleep(0.01)


def test_threads_of_a_command_fall_asleep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside another job a training whose threads wait awake takes many times as long."""
    monkeypatch.delenv("GOMP_SPINCOUNT", raising=False)
    words = [sys.executable, "-c", "import os; print(os.environ.get('GOMP_SPINCOUNT'))"]
    commands.execute(words, tmp_path / "log", {})
    assert (tmp_path / "log").read_text(encoding="utf-8").split() == ["3000"]
