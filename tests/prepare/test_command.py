"""fairseq-mega-prepare: its folder, whole or absent, and the settings that it belongs to."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, Dict, List

import pytest

from fairseq_mega.lab.prepare import command
from fairseq_mega.lab.prepare.dataset import Dataset, Report
from fairseq_mega.lab.prepare.options import WORKERS, file_option, folder_option, seed
from fairseq_mega.lab.prepare.work_folder import WorkFolder
from tests.support.prepare_runs import prepare, refusal, source_of

OPTIONS = (seed("files"), file_option("--file", text=""), folder_option("--archives", text=""), WORKERS)


class Toy:
    """A data set of two files whose making is counted, and fails on request."""

    def __init__(self) -> None:
        self.made = 0
        self.problem = BaseException()
        self.fail = self.keep_parts = False
        self.dataset = Dataset("toy", "Two files.", OPTIONS, self._make)

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
    assert "seed was 3 and is 2 now" in refusal("toy", "--out", out, "--seed", 2)
    assert toy.made == 1 and (out / "src-bin" / "train.bin").read_text() == "3"


CHANGES: Dict[str, Callable[[Path], Any]] = {
    "a file more in a linked folder": lambda folder: (folder.parent / "real" / "2.wav").write_text("new"),
    "another content of the same size": lambda folder: (folder / "a" / "1.wav").write_text("mended"),
    "another class": lambda folder: (folder / "b" / "1.wav").rename(folder / "a" / "2.wav"),
    "times": lambda folder: os.utime(folder / "a" / "1.wav", (1, 1)),
    "hidden files": lambda folder: (folder / "a" / ".DS_Store").write_text("x"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_counts_by_what_is_in_it(change: str, toy: Toy, tmp_path: Path) -> None:
    folder, real = tmp_path / "folder", tmp_path / "real"
    (folder / "a").mkdir(parents=True)
    (folder / "a" / "1.wav").write_text("before")
    real.mkdir()
    (folder / "b").symlink_to(real)
    (folder / "b" / "1.wav").write_text("b")
    run = ("toy", "--out", tmp_path / "out", "--file", folder)
    prepare(*run).succeeded()
    CHANGES[change](folder)
    if change in ("times", "hidden files"):
        assert "nothing to do" in prepare(*run).succeeded().output
    else:
        assert "file was" in refusal(*run)


def test_a_file_counts_by_its_content_unless_it_is_gone(toy: Toy, tmp_path: Path) -> None:
    own = tmp_path / "own.tsv"
    own.write_text("first")
    run = ("toy", "--out", tmp_path / "out", "--file", own)
    prepare(*run).succeeded()
    own.write_text("other")
    assert "file was" in refusal(*run)
    own.unlink()
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


@pytest.mark.parametrize("ending", [ValueError("--seed is a problem"), KeyboardInterrupt()])
def test_parts_are_kept_for_the_next_run_of_the_same_settings(toy: Toy, tmp_path: Path, ending: BaseException) -> None:
    """A failure without parts leaves nothing behind."""
    toy.problem, toy.fail, out = ending, True, tmp_path / "out"
    status = 130 if isinstance(ending, KeyboardInterrupt) else 1
    assert prepare("toy", "--out", out).status == status and not out.exists()
    toy.keep_parts = True
    assert prepare("toy", "--out", out).status == status
    assert files_below(out) == ["unfinished/lock", "unfinished/parts/part", "unfinished/settings.json"]
    toy.fail = toy.keep_parts = False
    assert "seed was 1 and is 2 now" in refusal("toy", "--out", out, "--seed", 2)
    assert (out / "unfinished" / "parts" / "part").exists()
    prepare("toy", "--out", out).succeeded()
    assert files_below(out) == ["card.json", "label", "src-bin/train.bin"]


def test_a_run_killed_while_moving_the_output_is_not_taken_for_done(
    toy: Toy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The card comes last: its presence means that all is there."""
    out, replace = tmp_path / "out", os.replace

    def dies(source: Path, target: Path) -> None:
        if Path(target).parent == out and any(out.glob("[ls]*")):
            raise KeyboardInterrupt
        replace(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", dies)
        assert prepare("toy", "--out", out).status == 130
    assert len(list(out.glob("[ls]*"))) == 1 and "but no card.json" in refusal("toy", "--out", out)


def test_a_folder_with_other_files_is_refused_untouched(toy: Toy, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    assert "holds thesis.tex" in refusal("toy", "--out", tmp_path)
    assert files_below(tmp_path) == ["thesis.tex"]
    assert "thesis.tex" in refusal("toy", "--out", tmp_path / "thesis.tex")


def test_a_second_process_is_kept_out(toy: Toy, tmp_path: Path) -> None:
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); print(flush=True); input()"
    )
    (tmp_path / "unfinished").mkdir()
    words = [sys.executable, "-c", program, str(tmp_path / "unfinished" / "lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None and other.stdout.readline() == "\n"
        assert "another process is writing there" in refusal("toy", "--out", tmp_path)
        other.communicate("\n")
    prepare("toy", "--out", tmp_path).succeeded()
