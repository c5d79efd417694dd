"""A full disk is told with the name of the file that could not be written."""

import errno
import subprocess
import sys
import wave
from pathlib import Path

import pytest
import torch

from fairseq_mega.compat.errors import describe
from fairseq_mega.lab.runs.files import written_whole
from tests.support.helpers import REPOSITORY


def write_recordings(folder: Path) -> None:
    """Write ten recordings of each of two labels."""
    for number in range(20):
        path = folder / "ab"[number % 2] / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        with wave.open(str(path), "wb") as clip:
            clip.setparams((1, 2, 16000, 0, "NONE", ""))
            clip.writeframes(bytes((number + 7 * place) % 251 for place in range(2000)))


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG])
def test_want_of_space_names_the_file(number: int, tmp_path: Path) -> None:
    path = tmp_path / "out.json"
    with pytest.raises(OSError, match="out.json cannot be written .* make room"), written_whole(path):
        raise OSError(number, "No space left on device")
    with pytest.raises(OSError, match="^no device$"), written_whole(path):
        raise OSError("no device")
    assert not path.exists()
    assert describe(OSError(number, "No space left on device")).endswith(
        "Make room where the command writes, and give it again"
    )
    assert describe(OSError(number, "No space left: make room")).endswith("make room")


def test_a_full_disk_ends_an_average_in_one_line(tmp_path: Path) -> None:
    """torch.save raises an error of its own, which names neither the file nor the disk."""
    made, path = tmp_path / "made.pt", tmp_path / "average.pt"
    torch.save({"model": {"w": torch.zeros(9000)}, "cfg": {}}, made)
    words = ["--inputs", str(made), "--output", str(path)]
    program = "import resource, sys; from fairseq_mega.cli.average_checkpoints import main; "
    for begin, status in (("resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); ", 1), ("", 0)):
        code = f"{program}{begin}sys.exit(main({words!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
        assert done.returncode == status, done.stderr
        assert sorted(tmp_path.iterdir()) == sorted([made] if status else [made, path])
        if status:
            (line,) = done.stderr.splitlines()
            assert line.endswith(f"error: {path} cannot be written (File too large): make room, and try again")


@pytest.mark.parametrize("dataset", ["own-texts", "recordings"])
def test_a_full_disk_ends_a_preparation_in_one_line(dataset: str, tmp_path: Path) -> None:
    """The folder is named, nothing in it is taken for done, and the command succeeds where there is room."""
    out, words = tmp_path / "out", [dataset, "--out", str(tmp_path / "out")]
    if dataset == "own-texts":
        rows = "".join(f"{'ab'[number % 2]}\tw{number} w{number % 7}\n" for number in range(4000))
        (tmp_path / "t.tsv").write_text("label\ttext\n" + rows)
        words += ["--train", str(tmp_path / "t.tsv")]
    else:
        write_recordings(tmp_path / "sounds")
        words += ["--dir", str(tmp_path / "sounds")]
    program = "import resource, sys; from fairseq_mega.lab.prepare.command import main; "
    limit = "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000)); "
    for begin, status in ((limit, 1), ("", 0)):
        code = f"{program}{begin}sys.exit(main({words!r}))"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=REPOSITORY)
        assert done.returncode == status, done.stderr
        assert (out / "SOURCE.json").exists() == (status == 0)
        if status:
            (line,) = [line for line in done.stderr.splitlines() if "error" in line]
            assert f"error: --out {out} cannot be written (File too large): make room, and try again" in line
