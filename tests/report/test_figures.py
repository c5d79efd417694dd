"""Figures and other pictures, apart from what they print."""

import json
from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.report import figures, pictures
from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.runs import plotting
from fairseq_mega.lab.runs.plotting import Line
from fairseq_mega.lab.runs.results import ResultError
from tests.report.synthetic import figure1, figure4


def log_line(tag: str, **values: object) -> str:
    return f"2026-01-02 03:04:05 | INFO | {tag} | {json.dumps({key: str(value) for key, value in values.items()})}\n"


def test_the_functions_of_figure5() -> None:
    """Both are the same at the median of Laplace, where relu2 is a half too: x = sqrt(1/2)."""
    for points in figures.functions().values():
        x, y = min(points, key=lambda point: abs(point[0] - 0.5**0.5))
        assert abs(y - 0.5) < 0.02 and abs(x - 0.5**0.5) < 0.01


def test_losses_and_speeds_are_the_states_of_recipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figure1(tmp_path / "1")
    figure4(tmp_path / "4")
    assert main(["recipes", str(tmp_path), "--format", "markdown"]) == 0
    output = capsys.readouterr().out
    assert "| megalodon/figure1/gcide/llama | plot | 2.3500 ±0.1000 bits per byte |" in output
    assert "80 tokens/s at 4,096, 90 tokens/s at 32,768" in output


def test_trainings_of_different_lengths_are_not_averaged() -> None:
    curves = [{"curve": {"train": {"tokens": [1] * n, "bits_per_token": [2.0] * n}}} for n in (3, 4)]
    assert list(figures.losses(curves[:1])) == [1e-6]
    with pytest.raises(ResultError, match="different lengths"):
        figures.losses(curves)


def test_bands_are_drawn_in_the_colour_of_their_line(tmp_path: Path) -> None:
    drawn: List[Any] = []
    pyplot = plotting.load_pyplot()
    close = pyplot.close
    pyplot.close = drawn.append
    try:
        line = Line([(0.0, 1.5), (1.0, 2.5)], "a", {"color": "#d95f02"}, [(0.0, 1.0, 2.0), (1.0, 1.0, 2.0)])
        plotting.draw_panels([plotting.Panel([line, Line([(0.0, 1.0)])], {})], tmp_path / "x.png")
    finally:
        pyplot.close = close
    (axes,) = drawn[0].axes
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == (1.0, 2.0)
    assert band.get_facecolor()[0][:3] == pytest.approx((0xD9 / 255, 0x5F / 255, 0x02 / 255))
    close(drawn[0])


def test_curves_of_a_log_that_was_interrupted(tmp_path: Path, capsys: Any) -> None:
    lines = [log_line("train_inner", num_updates=step, loss=5 - step) for step in (1, 2, 2)]
    lines[2] = log_line("train_inner", num_updates=2, loss=0.5)  # trained again; this one counts
    lines += ["2026 | INFO | train_inner | {cut off\n", log_line("train", train_num_updates=9, train_loss=1)]
    lines += [log_line("valid", valid_num_updates=2, valid_loss=2.5, valid_bleu=12.5, valid_ppl=5.6)]
    found = pictures.read_curves(lines)
    assert {title: points for title, points in found.items() if points} == {
        "training loss (bits)": {1: 4.0, 2: 0.5},
        "validation loss (bits)": {2: 2.5},
        "validation BLEU": {2: 12.5},
        "validation perplexity": {2: 5.6},
    }
    assert pictures.read_curves(line[line.index("{") :] for line in lines) == found  # as --log-file has them
    log, image = tmp_path / "run" / "train.log", tmp_path / "curves.png"
    log.parent.mkdir()
    log.write_text("".join(lines))
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.6'")
    assert main(["curves", str(log), "--output", str(image)]) == 0
    assert capsys.readouterr().out == f"run: 2 updates\nplot: {image}\n" and image.stat().st_size > 5000


def test_the_page_of_pathfinder_shows_both_labels(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the page needs matplotlib: pip install 'matplotlib>=3.6'")
    images = pictures.pathfinder_images(32)
    assert {label: len(found) for label, found in images.items()} == {1: 5, 0: 5}
    output = tmp_path / "folder" / "page.png"
    words = ["pathfinder-page", "--out", str(output), "--size"]
    assert main([*words, "33"]) == 1 and not output.exists()
    assert main([*words, "32"]) == 0
    assert str(output) in capsys.readouterr().out
    page = pyplot.imread(output)
    assert page.shape[0] > 400 and page.shape[1] > 400
    assert page[..., :3].min() < 0.1 and page[..., :3].max() == 1
