"""fairseq-mega-prepare: its folder, its help, packages of Debian; and archives that are damaged."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from fairseq_mega.lab.prepare import command, debian
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from tests.support.prepare_runs import prepare, refusal, source_of


class Toy:
    """A data set of two files whose making is counted, and fails on request."""

    def __init__(self) -> None:
        self.made = 0
        self.problem: BaseException = ValueError("--seed is a problem: give another")
        self.fail = self.keep_parts = False
        self.dataset = Dataset("toy", "Two files.", self._options, self._make)

    def _options(self, parser: Any) -> None:
        parser.add_argument("--seed", type=int, default=1)
        parser.add_argument("--file", type=Path)
        parser.add_argument("--archives", type=Path)
        parser.add_argument("--workers", type=int, default=1)

    def _make(self, args: Any, work: WorkFolder) -> Report:
        self.made += 1
        (work.output / "src-bin").mkdir()
        (work.output / "src-bin" / "train.bin").write_text(str(args.seed))
        (work.output / "label").write_text("0\n")
        if self.keep_parts:
            (work.parts / "part").write_text("kept")
        if self.fail:
            raise self.problem
        return Report("a toy", {"train": {"examples": 1}})


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Toy:
    toy = Toy()
    monkeypatch.setattr(command, "DATASETS", {**command.DATASETS, "toy": toy.dataset})
    return toy


def files_below(folder: Path) -> List[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_finished_output_is_whole_recorded_and_not_made_again(toy: Toy, tmp_path: Path) -> None:
    out = tmp_path / "out"
    prepare("toy", "--out", out, "--seed", 3).succeeded()
    assert files_below(out) == ["card.json", "label", "src-bin/train.bin"]
    source = source_of(out)
    assert source["dataset"] == "toy" and source["settings"] == {"dataset": "toy", "seed": 3}
    assert source["splits"] == {"train": {"examples": 1}} and source["origin"] == "a toy"
    assert source["files"]["src-bin/train.bin"]["bytes"] == 1
    # sha256 of the text "3"
    assert source["files"]["src-bin/train.bin"]["sha256"].startswith("4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f")
    assert f"toy --out {out} --seed 3" in source["command"]
    again = prepare("toy", "--out", out, "--seed", 3, "--workers", 2).succeeded()
    assert "nothing to do" in again.output and toy.made == 1


def test_other_settings_in_a_finished_folder_are_an_error(toy: Toy, tmp_path: Path) -> None:
    prepare("toy", "--out", tmp_path / "out").succeeded()
    message = refusal("toy", "--out", tmp_path / "out", "--seed", 2)
    assert "seed was 1 and is 2 now" in message and "another folder" in message
    assert toy.made == 1 and (tmp_path / "out" / "src-bin" / "train.bin").read_text() == "1"


def test_another_file_of_the_same_name_is_another_setting_but_a_removed_one_is_not(toy: Toy, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text("first")
    run = ("toy", "--out", tmp_path / "out", "--file", own)
    prepare(*run).succeeded()
    own.write_text("second")
    assert "file was" in refusal(*run)
    own.unlink()
    assert "nothing to do" in prepare(*run).succeeded().output


def _add(folder: Path) -> None:
    (folder / "b" / "2.wav").write_text("new")


def _put(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("x")


def _mend(folder: Path) -> None:
    (folder / "a" / "1.wav").write_text("mended")


CHANGES: Dict[str, Callable[[Path], Any]] = {
    "a file more": _add,
    "one less": lambda folder: (folder / "b" / "1.wav").unlink(),
    "another content of the same size": _mend,
    "another name": lambda folder: (folder / "b" / "1.wav").rename(folder / "b" / "2.wav"),
    "another class": lambda folder: (folder / "b" / "1.wav").rename(folder / "a" / "2.wav"),
    "a class more": lambda folder: _put(folder / "c" / "1.wav"),
    "in a linked folder": lambda folder: _add(folder.parent / "real"),
}
NO_CHANGES: Dict[str, Callable[[Path], Any]] = {
    "nothing": lambda folder: None,
    "times": lambda folder: os.utime(folder / "a" / "1.wav", (1, 1)),
    "hidden files": lambda folder: (folder / "a" / ".DS_Store").write_text("x"),
    "thumbnails": lambda folder: _put(folder / ".thumbnails" / "1.wav"),
    "a link to itself": lambda folder: (folder / "a" / "again").symlink_to(folder / "a"),
}


@pytest.mark.parametrize("change", [*CHANGES, *NO_CHANGES])
def test_a_folder_counts_by_what_is_in_it(change: str, toy: Toy, tmp_path: Path) -> None:
    folder, real = tmp_path / "folder", tmp_path / "real" / "b"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "1.wav").write_text("before")
    real.mkdir(parents=True)
    (folder / "b").symlink_to(real)
    (folder / "b" / "1.wav").write_text("b")
    run = ("toy", "--out", tmp_path / "out", "--file", folder)
    prepare(*run).succeeded()
    {**CHANGES, **NO_CHANGES}[change](folder)
    if change in CHANGES:
        assert "file was" in refusal(*run)
    else:
        assert "nothing to do" in prepare(*run).succeeded().output


def test_files_that_are_not_read_do_not_count(toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files count that the data set reads, by its own list; those in the folder of downloads do not."""
    toy.dataset = dataclasses.replace(toy.dataset, members={"file": ("train.tsv", "deep/*.txt")})
    monkeypatch.setattr(command, "DATASETS", {"toy": toy.dataset})
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "1.txt").write_text("x")
    run = ("toy", "--out", tmp_path / "out", "--file", tmp_path / "in", "--archives", tmp_path / "in")
    prepare(*run).succeeded()
    (tmp_path / "in" / "other.tsv").write_text("x")
    (tmp_path / "in" / "deep" / "1.zip").write_text("x")
    assert "nothing to do" in prepare(*run).succeeded().output
    for name in ("train.tsv", "deep/2.txt"):
        (tmp_path / "in" / name).write_text("x")
        message = refusal(*run)
        assert "file was" in message and "archives was" not in message
        (tmp_path / "in" / name).unlink()


def test_a_failure_leaves_nothing_behind(toy: Toy, tmp_path: Path) -> None:
    toy.fail = True
    assert refusal("toy", "--out", tmp_path / "out").endswith("--seed is a problem: give another")
    assert not (tmp_path / "out").exists()
    toy.fail = False
    prepare("toy", "--out", tmp_path / "out", "--seed", 2).succeeded()


@pytest.mark.parametrize("ending", [OSError("disk full"), ValueError("bad"), KeyboardInterrupt()])
def test_parts_are_kept_for_the_next_run_of_the_same_settings(toy: Toy, tmp_path: Path, ending: BaseException) -> None:
    toy.fail = toy.keep_parts = True
    toy.problem = ending
    run = prepare("toy", "--out", tmp_path)
    assert run.status == (130 if isinstance(ending, KeyboardInterrupt) else 1)
    assert files_below(tmp_path) == ["unfinished/lock", "unfinished/parts/part", "unfinished/settings.json"]
    toy.fail = toy.keep_parts = False
    assert "seed was 1 and is 2 now" in refusal("toy", "--out", tmp_path, "--seed", 2)
    assert (tmp_path / "unfinished" / "parts" / "part").exists()
    prepare("toy", "--out", tmp_path).succeeded()
    assert files_below(tmp_path) == ["card.json", "label", "src-bin/train.bin"]


@pytest.mark.parametrize("moved", ["label", "src-bin"])
def test_a_run_killed_while_moving_the_output_is_completed(toy: Toy, tmp_path: Path, moved: str) -> None:
    prepare("toy", "--out", tmp_path).succeeded()
    output = tmp_path / "unfinished" / "output"
    output.mkdir(parents=True)
    for name in {"card.json", "label", "src-bin"} - {moved}:
        (tmp_path / name).rename(output / name)
    prepare("toy", "--out", tmp_path).succeeded()
    assert files_below(tmp_path) == ["card.json", "label", "src-bin/train.bin"] and toy.made == 1


def test_a_folder_with_other_files_is_refused_untouched(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "holds thesis.tex" in refusal("toy", "--out", tmp_path)
    assert files_below(tmp_path) == ["thesis.tex"]
    assert "thesis.tex" in refusal("toy", "--out", tmp_path / "thesis.tex")


def test_a_second_process_is_kept_out(toy: Toy, tmp_path: Path) -> None:
    program = (
        "import fcntl, os, sys\n"
        "lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.lockf(lock, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    (tmp_path / "unfinished").mkdir()
    lock = tmp_path / "unfinished" / "lock"
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout is not None and other.stdout.readline() == "locked\n"
        assert "another process is writing there" in refusal("toy", "--out", tmp_path)
        assert lock.exists()
        other.communicate()
    prepare("toy", "--out", tmp_path).succeeded()


def stub(folder: Path, name: str, script: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


@pytest.fixture
def stubs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of commands, the only one that is searched: a dpkg-deb that notes what it unpacks."""
    folder = tmp_path / "stubs"
    folder.mkdir()
    for tool in ("sh", "cp", "touch", "cat"):
        folder.joinpath(tool).symlink_to(f"/bin/{tool}")
    stub(folder, "dpkg-deb", 'if [ "$1" = -f ]; then echo 1.2-3; else cp "$2" "$3/"; fi')
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    return folder


def test_packages_are_fetched_unpacked_and_recorded(stubs: Path, tmp_path: Path) -> None:
    stub(stubs, "apt-get", 'for name; do :; done; echo content > "${name}_1%3a2_all.deb"')
    raw, target = tmp_path / "raw", tmp_path / "target"
    records = debian.obtain_packages(["one", "two"], None, raw, target)
    assert files_below(target) == ["one_1%3a2_all.deb", "two_1%3a2_all.deb"] == files_below(raw)
    record: Dict[str, Any] = records["one_1%3a2_all.deb"]
    assert (record["package"], record["version"], record["bytes"]) == ("one", "1.2-3", 8)
    stub(stubs, "apt-get", "exit 1")
    debian.obtain_packages(["one", "two"], None, raw, tmp_path / "again")  # fetched before


def test_a_damaged_package_is_fetched_again_the_next_time(stubs: Path, tmp_path: Path) -> None:
    stub(stubs, "dpkg-deb", "echo 'not a Debian format archive' >&2; exit 2")
    stub(stubs, "apt-get", "echo half > one_1.deb")
    with pytest.raises(debian.DownloadError, match="not a Debian format archive"):
        debian.obtain_packages(["one"], None, tmp_path / "raw", tmp_path / "target")
    assert files_below(tmp_path / "raw") == []
    own = tmp_path / "one_2.deb"
    own.write_text("half")
    with pytest.raises(debian.DownloadError, match="one_2.deb"):
        debian.obtain_packages(["one"], [own], tmp_path / "raw", tmp_path / "target")
    assert own.exists()
