"""A full disk is told with the name of the file that could not be written."""

import contextlib
import errno
import resource
from pathlib import Path
from typing import Iterator

import pytest
import torch

from fairseq_mega.cli import average_checkpoints
from fairseq_mega.lab.prepare import command
from fairseq_mega.lab.runs.files import written_whole
from tests.support.in_process import call, in_process  # noqa: F401


@contextlib.contextmanager
def little_space() -> Iterator[None]:
    """No file of this process and of those that it starts grows beyond 9,000 bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (9000, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_want_of_space_names_the_file(number: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with pytest.raises(OSError, match="out.json cannot be written .* make room"), written_whole(path):
        raise OSError(number, "No space left on device")
    with pytest.raises(OSError, match="^no device$"), written_whole(path):
        raise OSError("no device")
    assert not path.exists()


def test_a_full_disk_ends_an_average_in_one_line(tmp_path: Path) -> None:
    """torch.save raises an error of its own, which names neither the file nor the disk."""
    made, path = tmp_path / "made.pt", tmp_path / "average.pt"
    torch.save({"model": {"w": torch.zeros(9000)}, "cfg": {}}, made)
    words = ["--inputs", made, "--output", path]
    with little_space():
        failed = call(average_checkpoints.main, *words)
    (line,) = failed.stderr.splitlines()
    assert failed.returncode == 1 and f"error: {path} " in line and "File too large" in line
    assert [*tmp_path.iterdir()] == [made]
    assert call(average_checkpoints.main, *words).returncode == 0 and path.exists()


@pytest.mark.usefixtures("in_process")
def test_a_full_disk_ends_a_preparation_in_one_line(tmp_path: Path) -> None:
    """The folder is named, nothing in it is taken for done, and the command succeeds where there is room."""
    out, text = tmp_path / "out", tmp_path / "t.tsv"
    rows = "".join(f"{'ab'[number % 2]}\tw{number} w{number % 7}\n" for number in range(4000))
    text.write_text("label\ttext\n" + rows)
    words = ["own-texts", "--out", str(out), "--train", str(text)]
    with little_space():
        failed = call(command.main, *words)
    (line,) = [line for line in failed.stderr.splitlines() if "error" in line]
    assert failed.returncode == 1 and f"error: --out {out} " in line and "File too large" in line
    assert not (out / "card.json").exists()
    assert call(command.main, *words).returncode == 0 and (out / "card.json").exists()
