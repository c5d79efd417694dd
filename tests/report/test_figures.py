"""Figures and other pictures, apart from what they print."""

from pathlib import Path
from typing import Any, Dict

import pytest

from fairseq_mega.lab.report import figures, pictures
from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.recipe_states import ours_of, states
from fairseq_mega.lab.runs.results import ResultError
from tests.report.synthetic import figure1, figure4, put


def test_the_functions_of_figure5() -> None:
    """Both are the same at the median of Laplace, where relu2 is a half too: x = sqrt(1/2)."""
    for line in figures.lines_of(figures.functions()):
        x, y = min(line.points, key=lambda point: abs(point[0] - 0.5**0.5))
        assert abs(y - 0.5) < 0.02 and abs(x - 0.5**0.5) < 0.01


def test_losses_and_speeds_are_the_states_of_recipes(tmp_path: Path) -> None:
    figure1(tmp_path / "1")
    figure4(tmp_path / "4")
    ours = {state.recipe.name: ours_of(state) for state in states([tmp_path]) if state.results}
    assert ours["megalodon/figure1/gcide/llama"] == "2.3500 ±0.1000 bits per byte"
    assert ours["megalodon/figure4/11m/megalodon"] == "80 tokens/s at 4,096, 90 tokens/s at 32,768"


def test_trainings_of_different_lengths_are_not_averaged() -> None:
    curves = [
        {
            "seed": n,
            "settings": {"model": "llama"},
            "curve": {"train": {"tokens": [1] * n, "bits_per_token": [2.0] * n}},
        }
        for n in (3, 4)
    ]
    assert {point.x for point in figures.losses(curves[:1])} == {1e-6}
    with pytest.raises(ResultError, match="different lengths"):
        list(figures.losses(curves))


def test_one_curve_is_of_one_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for sha in ("aa", "bb"):
        settings: Dict[str, Any] = {"mean_segment": 9.0, "chunk_size": 8, "segments": 2, "checkpoint_sha256": sha}
        put(tmp_path, "figure6", "mega/figure6/wikitext103/mega", {"perplexity": 9.0}, **settings)
    assert main(["figure6", str(tmp_path), "--output", str(tmp_path / "x.png")]) == 1
    assert "several models" in capsys.readouterr().err and not (tmp_path / "x.png").exists()


def test_the_page_of_pathfinder_shows_both_labels(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the page needs matplotlib: pip install 'matplotlib>=3.6'")
    images = pictures.pathfinder_images(32)
    assert {label: len(found) for label, found in images.items()} == {1: 5, 0: 5}
    output = tmp_path / "folder" / "page.png"
    assert main(["pathfinder-page", "--out", str(output), "--size", "33"]) == 1 and not output.exists()
    assert main(["pathfinder-page", "--out", str(output)]) == 0
    page = pyplot.imread(output)
    assert page[..., :3].min() < 0.1 and page[..., :3].max() == 1
