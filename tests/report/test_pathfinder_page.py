"""The page of Pathfinder images."""

from pathlib import Path

import pytest

from fairseq_mega.lab.report import pathfinder_page
from fairseq_mega.lab.report.command import main


def test_the_page_shows_both_labels(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the page needs matplotlib: pip install 'matplotlib>=3.6'")
    images = pathfinder_page.sample(32, 2, seed=1)
    assert {label: len(found) for label, found in images.items()} == {1: 2, 0: 2}
    output = tmp_path / "folder" / "page.png"
    assert main(["pathfinder-page", "--size", "32", "--columns", "2", "--out", str(output)]) == 0
    assert str(output) in capsys.readouterr().out
    page = pyplot.imread(output)
    assert page.shape[0] > 400 and page.shape[1] > 400
    assert page[..., :3].min() < 0.1 and page[..., :3].max() == 1


@pytest.mark.parametrize("option", [("--columns", "0"), ("--seed", "-1")])
def test_senseless_options_are_refused(option: tuple, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    assert main(["pathfinder-page", *option, "--out", str(tmp_path / "page.png")]) == 1
    error = capsys.readouterr().err
    assert option[0] in error and option[1] in error


def test_an_unknown_size_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with pytest.raises(SystemExit):
        main(["pathfinder-page", "--size", "64", "--out", str(tmp_path / "page.png")])
    error = capsys.readouterr().err
    assert "--size" in error and "64" in error
