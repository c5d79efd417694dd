"""A full disk is told with the name of the file that could not be written."""

import errno
from pathlib import Path

import pytest

from fairseq_mega.lab.runs.files import written_whole


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_want_of_space_names_the_file(number: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with pytest.raises(OSError, match="out.json cannot be written .* make room"), written_whole(path):
        raise OSError(number, "No space left on device")
    with pytest.raises(OSError, match="^no device$"), written_whole(path):
        raise OSError("no device")
    assert not path.exists()
