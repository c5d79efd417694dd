"""scripts/prepare_*.sh of language models: the parts and numbers of each text, on invented data and on one's own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare import binarised, command
from fairseq_mega.lab.prepare.language_modeling import toy_data
from tests.support import helpers, in_process
from tests.support.in_process import in_process as no_processes  # noqa: F401
from tests.support.stand_ins import commands_in

pytestmark = pytest.mark.usefixtures("no_processes")

SPLITS = ("train", "valid", "test")
SIZE = toy_data.SIZE


def run(data: str, out: Path, *options: object, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Prepare a data set in this process."""
    return in_process.call(command.main, data, "--skip-setup", "--out", out, *options, environment=environment)


def run_by_bash(name: str, *options: object, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Run a script in the environment of this Python."""
    variables = {**os.environ, "PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": sys.prefix, **(environment or {})}
    words = ["bash", str(helpers.REPOSITORY / "scripts" / f"{name}.sh"), *map(str, options)]
    done = subprocess.run(words, env=variables, capture_output=True, text=True)
    return in_process.Done(done.returncode, done.stdout, done.stderr)


def counts(done: in_process.Done, out: Path) -> Dict[str, Any]:
    """Read counts.json of a run that succeeded, after a look whether the data that it speaks of is there."""
    assert done.returncode == 0, done.stdout + done.stderr
    for file in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
        assert (out / "data-bin" / file).is_file()
    found: Dict[str, Any] = json.loads((out / "counts.json").read_text())
    return found


@pytest.mark.slow
def test_wikitext(tmp_path: Path) -> None:
    out = tmp_path / "wiki text"
    done = run_by_bash("prepare_wikitext103", "--skip-setup", "--out", out, "--smoke", "--workers", 2)
    assert "SMOKE RUN on invented data" in done.stderr
    for split, found in counts(done, out)["splits"].items():
        lines = toy_data.wikitext_lines(split)
        assert found["lines"] == len(lines) == toy_data.LINES[split]
        assert found["tokens"] == sum(len(line.split()) + 1 for line in lines)
        assert found["unknown"] >= sum(line.split().count("<unk>") for line in lines) > 0


@pytest.mark.slow
def test_enwik8_has_a_token_per_byte(tmp_path: Path) -> None:
    splits = counts(run("enwik8", tmp_path, "--smoke"), tmp_path)["splits"]
    text, begin = toy_data.running_text(SIZE), 0
    for split, size in (("train", 18000), ("valid", 1000), ("test", 1000)):
        part = text[begin : begin + size]
        assert splits[split]["bytes"] == size and splits[split]["lines"] == len(part.splitlines())
        assert splits[split]["tokens"] == size + (not part.endswith(b"\n"))
        begin += size
    dictionary = (tmp_path / "data-bin" / "dict.txt").read_text().splitlines()
    train = text[:18000]
    numbers = {int(line.split()[0]): int(line.split()[1]) for line in dictionary if not line.startswith("made")}
    assert numbers == {byte: train.count(byte) for byte in set(train) - {10}}
    # Cut at line feeds and joined again, the text of a split is its bytes.
    lines = (tmp_path / "text" / "valid").read_text().split("\n")
    assert b"\n".join(bytes(map(int, line.split())) for line in lines) == text[18000:19000]

    (tmp_path / "data-bin" / "test.bin").write_bytes(b"\2\0\2\0")  # two </s>
    refused = run("enwik8", tmp_path, "--smoke")
    assert refused.returncode == 1 and "data-bin/test.bin" in refused.stderr


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
    assert "text: made before" in again.stderr
    found = counts(again, out)
    assert found == counts(run("gcide", whole, "--smoke"), whole) and not (out / "unfinished").exists()
    for name in ("dict.txt", "train.bin", "test.bin"):
        assert (out / "data-bin" / name).read_bytes() == (whole / "data-bin" / name).read_bytes()
    assert found["unit"] == "bytes"
    for split, share in (("train", 0.9), ("valid", 0.05), ("test", 0.05)):
        assert abs(found["splits"][split]["bytes"] / SIZE - share) < 0.03


def test_gcide_is_taken_from_the_fetched_package(tmp_path: Path) -> None:
    """By stand-ins of apt-get, which fetches, and of dpkg-deb, which unpacks, a small dict-gcide."""
    toy_data.write_corpus("gcide", tmp_path / "gcide.dict.dz")
    package = commands_in(
        tmp_path / "bin",
        apt_get='for last; do :; done; [ "$last" = dict-gcide ]; echo package >dict-gcide_9_all.deb',
        dpkg_deb=f"""case $1 in
          -x) grep -q package "$2"; mkdir -p "$3/usr/share/dictd"
              cp '{tmp_path}/gcide.dict.dz' "$3/usr/share/dictd/" ;;
          -f) echo 0.48-test ;;
        esac""",
    )
    stopped = run("gcide", tmp_path / "out", "--limit", 1, environment=package)
    assert stopped.returncode == 1 and "no line is left" in stopped.stderr
    assert (tmp_path / "out" / "raw" / "gcide.txt").read_bytes() == toy_data.running_text(SIZE)
    assert not (tmp_path / "out" / "card.json").exists()


@pytest.mark.slow
def test_own_text_as_bytes_with_its_own_splits(tmp_path: Path) -> None:
    own, out = tmp_path / "my text.txt", tmp_path / "out"
    own.write_text("".join(f"{line} caf\u00e9\n" for line in helpers.random_sentences(600, seed=5)), encoding="utf-8")
    (tmp_path / "valid").write_bytes(b"\xff\n\0 ok")  # no UTF-8, but bytes
    options = ["--train", own, "--valid", tmp_path / "valid", "--test", own, "--unit", "bytes"]
    found = counts(run("text-lm", out, *options), out)["splits"]
    assert found["valid"]["tokens"] == 7 and found["valid"]["lines"] == 2
    assert found["train"]["tokens"] == found["test"]["tokens"] == own.stat().st_size
    with open(own, "a", encoding="utf-8") as stream:
        stream.write("more\n")
    other = run("text-lm", out, *options)
    assert other.returncode == 1 and "test was " in other.stderr


def test_help_needs_no_environment() -> None:
    done = run_by_bash("prepare_text_lm", "--help", environment={"FAIRSEQ_MEGA_VENV": "/nonexistent"})
    assert done.returncode == 0 and " --skip-setup" in done.stdout
