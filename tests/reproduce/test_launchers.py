"""Runs that are started elsewhere: printed commands, and jobs of SLURM."""

import sys
import types
from pathlib import Path
from typing import Any, Dict, List

import pytest

from fairseq_mega.lab.reproduce.command import main
from tests.support import lra_data
from tests.support.in_process import in_process  # noqa: F401

ONE = "mega/table2/image/mega"


@pytest.fixture
def words(tmp_path: Path) -> List[str]:
    data = lra_data.write_images(tmp_path / "image", pixels=1024)
    return [ONE, "--data", str(data), "--out", str(tmp_path / "out"), "--seeds", "1,11"]


def test_commands_are_printed(words: List[str], capsys: pytest.CaptureFixture[str]) -> None:
    """One for each run, without the launcher and with its own seed; nothing is started."""
    assert main([*words, "--gpus", "0", "--launcher", "print"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert len(lines) == 2 and all(line.startswith("fairseq-mega-reproduce ") for line in lines)
    assert [line.split()[-1] for line in lines] == ["1", "11"] and "--launcher" not in "".join(lines)
    assert all(line.count(ONE) == 1 for line in lines)


def test_a_printed_command_has_the_settings_of_its_recipe(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data = lra_data.write_images(tmp_path / "image", pixels=1024)
    words = ["mega/table2", "--where", "name=mega,transformer", "--where", "task=image", "--seeds", "1"]
    words += ["--set", "transformer:optimization.lr=0.1", "--set", "optimization.clip_norm=0.5"]
    assert main([*words, "--data", str(data), "--gpus", "0", "--launcher", "print", "--out", str(tmp_path)]) == 0
    mega, transformer = (line for line in capsys.readouterr().out.splitlines() if not line.startswith("#"))
    assert mega.count("--set ") == 1 and "--set optimization.clip_norm=0.5" in mega
    assert transformer.count("--set ") == 2 and "--set transformer:optimization.lr=0.1" in transformer


@pytest.mark.usefixtures("in_process")
def test_a_printed_command_is_accepted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The words after ``--`` stay behind it."""
    names = ["mega/table5/enwik8/mega", ONE, "mega/figure4/text/n0"]
    words = ["--smoke", *names, "--per-step=4", "--output", "x.png", "--seeds=1", "--out", str(tmp_path)]
    assert main([*words, "--max-update", "3", "--launcher=print", "--", "--log-interval", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert not any("--launcher=print" in line for line in lines)
    for name, line in zip(names, lines):
        assert [word for word in line if word in names] == [name] and line[-3:] == ["--", "--log-interval", "5"]
        assert main([*line[1:-3], "--gpus", "0", "--list"]) == 0


def test_a_recipe_in_a_file_is_printed_by_the_name_of_the_file(
    words: List[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    inherited = f"# @package _global_\ndefaults:\n  - /{ONE}@_global_\n  - _self_\n"
    file.write_text(f"{inherited}recipe: {{number: mine}}\nmodel: {{dropout: 0.3}}\n")
    assert main([str(file), *words[1:], "--gpus", "0", "--launcher", "print"]) == 0
    lines = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert len(lines) == 2 and all(f" {file} --seeds " in line for line in lines)


class Executor:
    """Stand-in for submitit's executor, which records its jobs."""

    jobs: List[Dict[str, Any]] = []

    def __init__(self, folder: str, cluster: str) -> None:
        self.job: Dict[str, Any] = {"folder": folder, "cluster": cluster}

    def update_parameters(self, **parameters: Any) -> None:
        self.job.update(parameters)

    def submit(self, function: Any, *arguments: Any) -> Any:
        self.jobs.append({**self.job, "words": arguments[0], "variables": arguments[1]})
        return types.SimpleNamespace(job_id=100 + len(self.jobs))


def test_jobs_of_slurm(words: List[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job for each run, on as many GPUs as the published batch comes from; more options go to submitit."""
    monkeypatch.setitem(sys.modules, "submitit", types.SimpleNamespace(AutoExecutor=Executor))
    monkeypatch.setattr(Executor, "jobs", [])
    assert main([*words, "--gpus", "8", "--launcher", "slurm", "--slurm", "timeout_min=600"]) == 0
    assert "jobs 101, 102; " in capsys.readouterr().out
    first = Executor.jobs[0]
    assert (first["nodes"], first["tasks_per_node"], first["gpus_per_node"], first["timeout_min"]) == (1, 1, 1, 600)
    assert "--distributed-port" not in first["words"] and first["variables"] == {
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"
    }
    assert main([*words[:-1], "1", "--gpus", "10", "--gpus-per-run", "10", "--launcher", "slurm", "--fp32"]) == 0
    last = Executor.jobs[-1]
    assert (last["nodes"], last["tasks_per_node"], last["gpus_per_node"]) == (2, 5, 5)
    assert "--distributed-port" in last["words"] and last["variables"] == {"NVIDIA_TF32_OVERRIDE": "0"}


def test_without_submitit(
    words: List[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert main([*words, "--gpus", "1", "--launcher", "slurm"]) == 1
    assert "--launcher slurm needs submitit" in capsys.readouterr().err
