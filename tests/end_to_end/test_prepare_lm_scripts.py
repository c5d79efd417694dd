"""scripts/prepare_*.sh of language models: counts, an interruption, a text out of a package."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare import binarised, command, toy_data
from tests.support import in_process
from tests.support.helpers import REPOSITORY
from tests.support.in_process import in_process as no_processes  # noqa: F401

pytestmark = pytest.mark.usefixtures("no_processes")

SPLITS = ("train", "valid", "test")
SIZE = toy_data.SIZE


def run(data: str, out: Path, *options: object, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Prepare a data set in this process."""
    return in_process.call(command.main, data, "--skip-setup", "--out", out, *options, environment=environment)


def counts(done: Any, out: Path) -> Dict[str, Any]:
    """Read counts.json of a run that succeeded, after a look whether the data that it speaks of is there."""
    assert done.returncode == 0, done.stdout + done.stderr
    for file in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
        assert (out / "data-bin" / file).is_file()
    found: Dict[str, Any] = json.loads((out / "counts.json").read_text())
    return found


@pytest.mark.slow
def test_wikitext(tmp_path: Path) -> None:
    out = tmp_path / "wiki text"
    words = ["bash", REPOSITORY / "scripts" / "prepare_wikitext103.sh", "--skip-setup", "--out", out, "--smoke"]
    environment = {**os.environ, "PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": sys.prefix}
    done = subprocess.run([*map(str, words)], env=environment, capture_output=True, text=True)
    assert "SMOKE RUN on invented data" in done.stderr
    for split, found in counts(done, out)["splits"].items():
        lines = toy_data.wikitext_lines(split)
        assert found["lines"] == len(lines) == toy_data.WIKITEXT_LINES[split]
        assert found["tokens"] == sum(len(line.split()) + 1 for line in lines)
        assert found["unknown"] >= sum(line.split().count("<unk>") for line in lines) > 0


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an interrupted binarisation do no harm and do not count as done; the text is not cut again."""
    binarise, out, whole = binarised.run_command, tmp_path / "out", tmp_path / "whole"

    def interrupt(words: Sequence[str], *others: Any, **more: Any) -> None:
        half = Path(words[words.index("--destdir") + 1])
        half.mkdir(parents=True)
        (half / "test.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(binarised, "run_command", interrupt)
    assert run("gcide", out, "--smoke").returncode == 130
    assert not (out / "data-bin").exists()
    other = run("gcide", out, "--smoke", "--blocks", 4)
    assert other.returncode == 1 and "blocks was 20 and is 4 now" in other.stderr
    monkeypatch.setattr(binarised, "run_command", binarise)
    again = run("gcide", out, "--smoke", "--workers", 3)
    assert "text: done before" in again.stderr
    found = counts(again, out)
    assert found == counts(run("gcide", whole, "--smoke"), whole) and not (out / "unfinished").exists()
    for name in ("dict.txt", "train.bin", "test.bin"):
        assert (out / "data-bin" / name).read_bytes() == (whole / "data-bin" / name).read_bytes()
    assert found["unit"] == "bytes"
    for split, share in (("train", 0.9), ("valid", 0.05), ("test", 0.05)):
        assert abs(found["splits"][split]["bytes"] / SIZE - share) < 0.03


UNPACK = """case $1 in
  -x) grep -q package "$2"; mkdir -p "$3/usr/share/dictd"; cp '{}/gcide.dict.dz' "$3/usr/share/dictd/" ;;
  -f) echo 0.48-test ;;
esac"""


def test_gcide_is_taken_from_the_fetched_package(tmp_path: Path) -> None:
    """By stand-ins of apt-get, which fetches, and of dpkg-deb, which unpacks, a small dict-gcide."""
    toy_data.gcide(tmp_path)
    (tmp_path / "bin").mkdir()
    for name, body in (
        ("apt-get", 'for last; do :; done; [ "$last" = dict-gcide ]; echo package >dict-gcide_9_all.deb'),
        ("dpkg-deb", UNPACK.format(tmp_path)),
    ):
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\nset -eu\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    path = {"PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    stopped = run("gcide", tmp_path / "out", "--limit", 1, environment=path)
    assert stopped.returncode == 1 and "no line is left" in stopped.stderr
    assert (tmp_path / "out" / "raw" / "gcide.txt").read_bytes() == toy_data.running_text(SIZE)
    assert not (tmp_path / "out" / "card.json").exists()
