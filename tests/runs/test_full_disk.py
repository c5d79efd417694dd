"""On a full disk a preparation fails, and succeeds where there is room."""

import contextlib
import resource
from pathlib import Path
from typing import Iterator

import pytest

from fairseq_mega.lab.prepare import command
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


@pytest.mark.usefixtures("in_process")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of the file that fairseq leaves open
def test_a_preparation_is_not_taken_for_done(tmp_path: Path) -> None:
    out, text = tmp_path / "out", tmp_path / "t.tsv"
    rows = "".join(f"{'ab'[number % 2]}\tw{number} w{number % 7}\n" for number in range(4000))
    text.write_text("label\ttext\n" + rows)
    words = ["own-texts", "--out", str(out), "--train", str(text)]
    with little_space():
        assert call(command.main, *words).returncode == 1
    assert not (out / "card.json").exists()
    assert call(command.main, *words).returncode == 0 and (out / "card.json").exists()
