"""Commands of --launcher print, for runs elsewhere."""

from pathlib import Path
from typing import List

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
