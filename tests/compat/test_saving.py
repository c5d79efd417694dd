"""Checkpoint files are complete or absent, and one training at a time writes them."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, List

import pytest
from fairseq.file_io import PathManager

from fairseq_mega.compat.files import locks
from tests.support import helpers, tiny_trainings


class TestAtomicCopy:
    def test_death_during_the_copy_keeps_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "a.pt").write_bytes(b"new contents")
        (tmp_path / "last.pt").write_bytes(b"old contents")

        def dies(source: str, destination: str) -> None:
            Path(destination).write_bytes(b"new")
            raise KeyboardInterrupt

        monkeypatch.setattr(shutil, "copyfile", dies)
        with pytest.raises(KeyboardInterrupt):
            PathManager.copy(str(tmp_path / "a.pt"), str(tmp_path / "last.pt"), overwrite=True)
        assert (tmp_path / "last.pt").read_bytes() == b"old contents"
        monkeypatch.undo()
        assert PathManager.copy(str(tmp_path / "a.pt"), str(tmp_path / "last.pt"), overwrite=True)
        assert (tmp_path / "last.pt").read_bytes() == b"new contents"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.pt", "last.pt"]


HOLDER = """
import sys, time
from fairseq_mega.compat.files import locks
class Owner: pass
owner = Owner()
locks.lock_for_training(sys.argv[1], owner)
print("locked", flush=True)
time.sleep(600)
"""


class Owner:
    """Whose lock it is."""


@pytest.fixture
def holder(tmp_path: Path) -> Any:
    """Another process that holds the lock of tmp_path."""
    environment = {**os.environ, "PYTHONPATH": str(helpers.REPOSITORY), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stdout.readline() == "locked\n"
    yield process
    process.kill()
    process.communicate()


class TestLock:
    def test_second_training_names_the_holder_of_the_folder(
        self, holder: Any, trainings: tiny_trainings.Trainings, device_flags: List[str], tmp_path: Path
    ) -> None:
        options = [*device_flags, "--num-workers", 0, "--max-update", 1, "--save-dir", tmp_path]
        arguments = trainings.arguments("image", *options)
        with pytest.raises(FileExistsError, match=f"--save-dir .*process {holder.pid},"):
            helpers.run_fairseq("train", arguments)
        assert not list(tmp_path.glob("*.pt"))
        helpers.run_fairseq("train", [*arguments, "--no-save"])

    def test_lock_of_a_killed_process_is_taken_over(self, holder: Any, tmp_path: Path) -> None:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert str(holder.pid) in (tmp_path / locks.TRAINING).read_text()
        owner = Owner()
        locks.lock_for_training(str(tmp_path), owner)
        assert f"process {os.getpid()}," in (tmp_path / locks.TRAINING).read_text()
        locks.lock_for_training(str(tmp_path), Owner())  # by the same process, a second time
        del owner
        assert not (tmp_path / locks.TRAINING).exists()

    def test_file_systems_without_locks(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        """All go on, with a warning."""

        def fails(*_: object) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

        monkeypatch.setattr("fcntl.lockf", fails)
        locks.lock_for_training(str(tmp_path), Owner())
        with locks.held(tmp_path / "a.lock", "it", "runner"):
            pass
        assert len(caplog.messages) == 2 and all("cannot be locked" in message for message in caplog.messages)

    def test_threads_of_a_process_take_turns(self, tmp_path: Path) -> None:
        inside, most = 0, 0

        def work() -> None:
            nonlocal inside, most
            with locks.held(tmp_path / "a.lock", "it", "thread"):
                inside += 1
                most = max(most, inside)
                time.sleep(0.01)
                inside -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert most == 1

    def test_the_next_one_waits_and_says_for_whom(
        self, holder: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        threading.Timer(0.3, holder.kill).start()
        with locks.held(tmp_path / locks.TRAINING, "the data", "runner"):
            assert holder.wait(5) == -signal.SIGKILL
        assert f"process {holder.pid}," in caplog.text
