"""Figures and other pictures, apart from what they print."""

import json
from pathlib import Path
from typing import Any, Dict

import pytest

from fairseq_mega.lab.report import figures, pictures
from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.recipe_states import ours_of, states
from fairseq_mega.lab.runs.results import ResultError
from fairseq_mega.lab.runs.training_log import parse_log
from tests.report.synthetic import figure1, figure4, put


def log_line(tag: str, **values: object) -> str:
    return f"2026-01-02 03:04:05 | INFO | {tag} | {json.dumps({key: str(value) for key, value in values.items()})}\n"


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


def test_curves_of_a_log_that_was_interrupted(tmp_path: Path, capsys: Any) -> None:
    lines = [log_line("train_inner", num_updates=step, loss=5 - step) for step in (1, 2, 2)]
    lines[2] = log_line("train_inner", num_updates=2, loss=0.5)  # trained again; this one counts
    lines += ["2026 | INFO | train_inner | {cut off\n", log_line("train", train_num_updates=9, train_loss=1)]
    lines += [log_line("valid", valid_num_updates=2, valid_loss=2.5, valid_bleu=12.5, valid_ppl=5.6)]
    found = pictures.curves_of(parse_log(lines))
    assert {title: points for title, points in found.items() if points} == {
        "training loss (bits)": {1: 4.0, 2: 0.5},
        "validation loss (bits)": {2: 2.5},
        "validation BLEU": {2: 12.5},
        "validation perplexity": {2: 5.6},
    }
    log, image = tmp_path / "run" / "train.log", tmp_path / "curves.png"
    log.parent.mkdir()
    log.write_text("".join(lines))
    pytest.importorskip("matplotlib", reason="the plot needs matplotlib: pip install 'matplotlib>=3.6'")
    assert main(["curves", str(log), "--output", str(image)]) == 0
    assert capsys.readouterr().out == f"run: 2 updates\nplot: {image}\n" and image.stat().st_size > 5000


def test_the_page_of_pathfinder_shows_both_labels(tmp_path: Path) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot", reason="the page needs matplotlib: pip install 'matplotlib>=3.6'")
    images = pictures.pathfinder_images(32)
    assert {label: len(found) for label, found in images.items()} == {1: 5, 0: 5}
    output = tmp_path / "folder" / "page.png"
    assert main(["pathfinder-page", "--out", str(output), "--size", "33"]) == 1 and not output.exists()
    assert main(["pathfinder-page", "--out", str(output)]) == 0
    page = pyplot.imread(output)
    assert page[..., :3].min() < 0.1 and page[..., :3].max() == 1
