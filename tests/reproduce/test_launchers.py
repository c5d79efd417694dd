"""Commands of --launcher print, for runs elsewhere."""

from pathlib import Path

import pytest

from fairseq_mega.lab.reproduce.command import main
from tests.support import lra_data
from tests.support.in_process import in_process  # noqa: F401

ONE = "mega/table2/image/mega"


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
    words = ["--smoke", *names, "--workers=4", "--bf16", "--seeds=1", "--out", str(tmp_path)]
    assert main([*words, "--max-update", "3", "--launcher=print", "--", "--log-interval", "5"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    for name, line in zip(names, lines):
        assert line.count("bf16") == line.count("--precision") == line.count("--smoke") == 1
        assert [word for word in line if word in names] == [name] and line[-3:] == ["--", "--log-interval", "5"]
        assert main([*line[1:-3], "--gpus", "0", "--list"]) == 0
