"""scripts/prepare_*.sh: small runs from nothing to binarised data, their resumption, and their errors."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

import pytest

from fairseq_mega.lab.prepare import binarised, command
from fairseq_mega.lab.prepare.language_modeling import toy_data
from tests.support import helpers, in_process
from tests.support.in_process import in_process as no_processes  # noqa: F401
from tests.support.prepare_runs import source_of
from tests.support.stand_ins import commands_in

pytestmark = pytest.mark.usefixtures("no_processes")

SCRIPTS = helpers.REPOSITORY / "scripts"
NAMES = {  # of the scripts, and their data sets
    "prepare_wikitext103": "wikitext",
    "prepare_enwik8": "enwik8",
    "prepare_gcide": "gcide",
    "prepare_text_lm": "text-lm",
}
SPLITS = ("train", "valid", "test")
SIZE = toy_data.SIZE


def run(name: str, *options: object, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Run a script in this process and return its status and output."""
    return in_process.call(command.main, NAMES[name], *options, environment=environment)


def run_by_bash(name: str, *options: object, environment: Optional[Dict[str, str]] = None) -> in_process.Done:
    """Run a script in the environment of this Python."""
    done = subprocess.run(
        ["bash", str(SCRIPTS / f"{name}.sh"), *map(str, options)],
        env={**os.environ, "PYTHONWARNINGS": "ignore", "FAIRSEQ_MEGA_VENV": sys.prefix, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=900,
    )
    return in_process.Done(done.returncode, done.stdout, done.stderr)


def succeed(name: str, out: Path, *options: object, environment: Optional[Dict[str, str]] = None) -> str:
    done = run(name, "--skip-setup", "--out", out, *options, environment=environment)
    return checked(done)


def checked(done: in_process.Done) -> str:
    """Assert that a run succeeded and return its stderr."""
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


def counts(out: Path) -> Dict[str, Any]:
    """Read counts.json, after a look whether the data that it speaks of is there."""
    for file in ("dict.txt", *(f"{split}.{kind}" for split in SPLITS for kind in ("bin", "idx"))):
        assert (out / "data-bin" / file).is_file()
    return json.loads((out / "counts.json").read_text())


@pytest.mark.slow
def test_wikitext(tmp_path: Path) -> None:
    out = tmp_path / "wiki text"
    output = checked(run_by_bash("prepare_wikitext103", "--skip-setup", "--out", out, "--smoke", "--workers", 2))
    assert "SMOKE RUN on invented data" in output
    for split, found in counts(out)["splits"].items():
        lines = toy_data.wikitext_lines(split)
        assert found["lines"] == len(lines) == toy_data.LINES[split]
        assert found["tokens"] == sum(len(line.split()) + 1 for line in lines)
        assert found["unknown"] >= sum(line.split().count("<unk>") for line in lines) > 0
    assert list(source_of(out)["inputs"]) == ["wikitext-103-v1.zip"]


@pytest.mark.slow
def test_enwik8_has_a_token_per_byte(tmp_path: Path) -> None:
    checked(run_by_bash("prepare_enwik8", "--skip-setup", "--out", tmp_path, "--smoke"))
    text = toy_data.running_text(SIZE)
    begin = 0
    for split, size in (("train", 18000), ("valid", 1000), ("test", 1000)):
        found, part = counts(tmp_path)["splits"][split], text[begin : begin + size]
        assert found["bytes"] == size
        assert found["tokens"] == size + (not part.endswith(b"\n"))
        assert found["lines"] == len(part.splitlines())
        begin += size
    dictionary = (tmp_path / "data-bin" / "dict.txt").read_text().splitlines()
    train = text[:18000]
    numbers = {int(line.split()[0]): int(line.split()[1]) for line in dictionary if not line.startswith("made")}
    assert numbers == {byte: train.count(byte) for byte in set(train) - {10}}
    # Cut at line feeds and joined again, the text of a split is its bytes.
    lines = (tmp_path / "text" / "valid").read_text().split("\n")
    assert b"\n".join(bytes(map(int, line.split())) for line in lines) == text[18000:19000]

    # Data that was altered since is noticed.
    (tmp_path / "data-bin" / "test.bin").write_bytes(b"\2\0\2\0")  # two </s>
    refused = run("prepare_enwik8", "--skip-setup", "--out", tmp_path, "--smoke", "--workers", 1)
    assert refused.returncode == 1
    assert re.search(r"data-bin/test\.bin: expected \d+ bytes as in card.json, found 4", refused.stderr)


@pytest.mark.slow
def test_an_interrupted_run_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of an interrupted binarisation do no harm and do not count as done; the text is not cut again."""
    binarise = binarised.run_command

    def interrupt(words: Sequence[str], *others: Any, **more: Any) -> None:
        half = Path(words[words.index("--destdir") + 1])
        half.mkdir(parents=True)
        (half / "test.bin").write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(binarised, "run_command", interrupt)
    stopped = run("prepare_gcide", "--skip-setup", "--out", tmp_path / "out", "--smoke")
    assert stopped.returncode == 130 and "start it again to continue" in stopped.stderr
    assert not (tmp_path / "out" / "data-bin").exists()
    other = run("prepare_gcide", "--skip-setup", "--out", tmp_path / "out", "--smoke", "--blocks", 4)
    assert other.returncode == 1 and "blocks was 20 and is 4 now" in other.stderr
    monkeypatch.setattr(binarised, "run_command", binarise)
    again = succeed("prepare_gcide", tmp_path / "out", "--smoke", "--workers", 3)
    assert "text: made before" in again
    succeed("prepare_gcide", tmp_path / "whole", "--smoke")
    assert counts(tmp_path / "out") == counts(tmp_path / "whole")
    for name in ("dict.txt", "train.bin", "test.bin"):
        content = (tmp_path / "whole" / "data-bin" / name).read_bytes()
        assert (tmp_path / "out" / "data-bin" / name).read_bytes() == content
    assert not (tmp_path / "out" / "unfinished").exists()


@pytest.fixture
def package(tmp_path: Path) -> Dict[str, str]:
    """An environment whose apt-get fetches, and whose dpkg-deb unpacks, a small dict-gcide."""
    toy_data.write_corpus("gcide", tmp_path / "gcide.dict.dz")
    return commands_in(
        tmp_path / "bin",
        apt_get='for last; do :; done; [ "$last" = dict-gcide ]; echo package >dict-gcide_9_all.deb',
        dpkg_deb=f"""case $1 in
          -x) grep -q package "$2"; mkdir -p "$3/usr/share/dictd"
              cp '{tmp_path}/gcide.dict.dz' "$3/usr/share/dictd/" ;;
          -f) echo 0.48-test ;;
        esac""",
    )


def test_gcide_is_taken_from_the_fetched_package(package: Dict[str, str], tmp_path: Path) -> None:
    out = tmp_path / "out"
    stopped = run("prepare_gcide", "--skip-setup", "--out", out, "--limit", 1, environment=package)
    assert stopped.returncode == 1
    assert (out / "raw" / "gcide.txt").read_bytes() == toy_data.running_text(SIZE)
    assert "gcide.txt: no line is left for" in stopped.stderr
    assert not (out / "card.json").exists() and not (out / "text").exists()


@pytest.mark.slow
def test_gcide_words_from_ones_own_package(package: Dict[str, str], tmp_path: Path) -> None:
    deb = tmp_path / "dict-gcide_own copy.deb"
    deb.write_text("package\n")
    out = tmp_path / "out"
    options = ["--deb", deb, "--unit", "words", "--limit", 8000, "--blocks", 4, "--threshold", 60]
    succeed("prepare_gcide", out, *options, environment=package)
    found = counts(out)
    assert found["unit"] == "words"
    assert 7500 < sum(part["bytes"] for part in found["splits"].values()) < 8500
    train = found["splits"]["train"]
    assert 0 < train["unknown"] < train["tokens"] - train["lines"]
    other = run("prepare_gcide", "--skip-setup", "--out", out, *options[:-1], 5, environment=package)
    assert other.returncode == 1
    assert "threshold was 60 and is 5 now" in other.stderr


@pytest.mark.slow
def test_gcide_smoke(tmp_path: Path) -> None:
    succeed("prepare_gcide", tmp_path, "--smoke")
    found = counts(tmp_path)
    assert found["unit"] == "bytes"
    assert sum(part["bytes"] for part in found["splits"].values()) == SIZE
    assert sum(part["tokens"] for part in found["splits"].values()) == SIZE + 1  # the text ends within a line
    for split, share in (("train", 0.9), ("valid", 0.05), ("test", 0.05)):
        assert abs(found["splits"][split]["bytes"] / SIZE - share) < 0.03


@pytest.mark.parametrize(("user", "updates"), [(1000, 0), (0, 1)])
def test_without_the_package_the_remedy_is_printed(
    user: int, updates: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = tmp_path / "calls"
    environment = commands_in(
        tmp_path / "bin",
        apt_get=f'echo "$*" >>"{calls}"; echo "E: Unable to locate package" >&2; exit 100',
        dpkg_deb="exit 1",
    )
    monkeypatch.setattr(os, "geteuid", lambda: user)
    failed = run("prepare_gcide", "--skip-setup", "--out", tmp_path / "out", environment=environment)
    assert failed.returncode == 1
    assert "E: Unable to locate package" in failed.stderr
    assert "give it with --deb FILE" in failed.stderr
    assert ("run 'apt-get update' as root" in failed.stderr) == (user != 0)
    assert [line for line in calls.read_text().splitlines() if line == "update"] == ["update"] * updates


def test_a_package_of_something_else_is_named(tmp_path: Path) -> None:
    deb = tmp_path / "dict-gcide_1.deb"
    deb.write_text("package\n")
    for program, message in (("exit 0", "gcide.dict.dz"), ("exit 2", str(deb))):
        environment = commands_in(tmp_path / program, dpkg_deb=program)
        failed = run("prepare_gcide", "--skip-setup", "--out", tmp_path / "out", "--deb", deb, environment=environment)
        assert failed.returncode == 1 and message in failed.stderr


@pytest.fixture
def own(tmp_path: Path) -> Path:
    path = tmp_path / "my text.txt"
    path.write_text("".join(f"{line} caf\u00e9\n" for line in helpers.random_sentences(600, seed=5)), encoding="utf-8")
    return path


@pytest.mark.slow
def test_own_text_as_bytes_with_its_own_splits(own: Path, tmp_path: Path) -> None:
    (tmp_path / "valid").write_bytes(b"\xff\n\0 ok")  # no UTF-8, but bytes
    out = tmp_path / "out"
    succeed("prepare_text_lm", out, "--train", own, "--valid", tmp_path / "valid", "--test", own, "--unit", "bytes")
    found = counts(out)["splits"]
    assert found["valid"]["tokens"] == 7 and found["valid"]["lines"] == 2
    assert found["train"]["tokens"] == found["test"]["tokens"] == own.stat().st_size

    with open(own, "a", encoding="utf-8") as stream:
        stream.write("more\n")
    options = ["--train", own, "--valid", tmp_path / "valid", "--test", own, "--unit", "bytes"]
    other = run("prepare_text_lm", "--skip-setup", "--out", out, *options)
    assert other.returncode == 1
    assert "belongs to other settings (test was " in other.stderr


@pytest.mark.slow
def test_own_text_smoke(tmp_path: Path) -> None:
    succeed("prepare_text_lm", tmp_path, "--smoke")
    found = counts(tmp_path)
    text = toy_data.running_text(SIZE).rpartition(b"\n")[0].decode() + "\n"
    assert found["unit"] == "words"
    assert sum(part["lines"] for part in found["splits"].values()) == text.count("\n")
    assert sum(part["tokens"] for part in found["splits"].values()) == len(text.split()) + text.count("\n")


def test_a_text_that_is_no_utf8_is_refused_by_line_and_byte(own: Path, tmp_path: Path) -> None:
    content = own.read_bytes()
    latin = content.decode("utf-8").encode("latin-1")
    (tmp_path / "latin.txt").write_bytes(latin)
    for options in (["--train", tmp_path / "latin.txt"], ["--train", own, "--test", tmp_path / "latin.txt"]):
        out = tmp_path / f"out{len(options)}"
        refused = run("prepare_text_lm", "--skip-setup", "--out", out, *options)
        assert refused.returncode == 1
        assert "latin.txt, line 1: " in refused.stderr and "byte 0xe9" in refused.stderr
        assert not (out / "data-bin").exists() and not (out / "text").exists()
    assert own.read_bytes() == content


def test_an_archive_with_another_checksum_is_refused(tmp_path: Path) -> None:
    (tmp_path / "copy.zip").write_bytes(b"cut off")
    refused = run("prepare_wikitext103", "--skip-setup", "--out", tmp_path / "a", "--archive", tmp_path / "copy.zip")
    assert refused.returncode == 1
    assert "copy.zip: expected MD5 9ddaacaf6af0710eda8c456decff7832, found " in refused.stderr
    assert "Salesforce/wikitext" in refused.stderr
    refused = run("prepare_enwik8", "--skip-setup", "--out", tmp_path / "b", "--archive", tmp_path / "copy.zip")
    assert refused.returncode == 1
    assert "expected 100000000 bytes, found 7" in refused.stderr
    assert (tmp_path / "copy.zip").read_bytes() == b"cut off"


@pytest.mark.slow
def test_a_text_with_other_counts_is_refused(tmp_path: Path) -> None:
    for split in SPLITS:
        (tmp_path / f"wiki.{split}.tokens").write_text("too short\n")
    out = tmp_path / "out"
    refused = run("prepare_wikitext103", "--skip-setup", "--version", 2, "--text", tmp_path, "--out", out)
    assert refused.returncode == 1
    assert "train: expected 36718 lines (wikitext-2 as published), found 1" in refused.stderr
    assert not (out / "counts.json").exists()


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("prepare_wikitext103", ["--version", "1"], "--version"),
        ("prepare_wikitext103", ["--text", "{tmp}/no"], "--text: {tmp}/no does not exist"),
        ("prepare_enwik8", ["--archive"], "--archive: expected one"),
        ("prepare_gcide", ["--limit", "1e6"], "--limit: '1e6': a whole number"),
        ("prepare_gcide", ["--fast"], "--fast"),
        ("prepare_text_lm", [], "--train is missing"),
    ],
)
def test_impossible_options_are_refused_before_anything_is_made(
    name: str, options: List[str], message: str, tmp_path: Path
) -> None:
    work = tmp_path / "work"
    refused = run_by_bash(name, "--skip-setup", "--out", work, *(option.format(tmp=tmp_path) for option in options))
    assert refused.returncode in (1, 2)
    assert message.format(tmp=tmp_path) in refused.stderr
    assert not work.exists()


def test_made_up_data_stand_alone(own: Path, tmp_path: Path) -> None:
    for name, option in (("prepare_text_lm", "--train"), ("prepare_enwik8", "--archive")):
        refused = run(name, "--smoke", f"{option}={own}", "--out", tmp_path / "out")
        assert refused.returncode == 1 and f"omit {option}" in refused.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", NAMES)
def test_help_needs_no_environment(name: str) -> None:
    done = run_by_bash(name, "--help", environment={"FAIRSEQ_MEGA_VENV": "/nonexistent"})
    assert done.returncode == 0
    for option in ("--out DIR", "--workers N", "--venv DIR", "--skip-setup", "--smoke", "--help"):
        assert f" {option}" in done.stdout
