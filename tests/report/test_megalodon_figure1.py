"""MEGALODON's Figure 1 scaled down, from result files."""

from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.report.documents.registry import TABLES
from fairseq_mega.lab.report.megalodon_figure1 import limits, losses
from fairseq_mega.lab.runs import plotting
from fairseq_mega.lab.runs.plotting import Line
from fairseq_mega.lab.runs.results import ResultError, make_result, write_result

ENDS = {"llama": 2.0, "megalodon": 1.5}  # training losses of seed 1; each further seed has 0.1 more
SPIKES = {"llama": [5, 7], "megalodon": [3, 5, 6]}
REPORT = "megalodon-figure1"


def store(folder: Path, model: str, seed: int, points: int = 8) -> None:
    """Write the results of one seed: its training and two contexts, of MEGALODON also the whole text."""
    about: Dict[str, Any] = {
        "model": model,
        "task": "gcide",
        "recipe": f"megalodon/figure1/gcide/{model}",
        "data": "released",
    }
    about.update(parameters=1234, lr=0.004)
    end = ENDS[model] + 0.1 * (seed - 1)
    scores: Dict[str, float] = {"train_bits_per_token": end, "valid_bits_per_token": end + 0.25}
    scores.update(updates_per_second=10.0 * seed)
    curve = {
        "tokens": [500_000 * (n + 1) for n in range(points)],
        "bits_per_token": [end + 8 / (n + 1) for n in range(points)],
    }
    settings = {**about, "updates": points, "tokens": 4_000_000}
    trained = make_result(REPORT, "x", scores, 1, "c", seed, settings, curve={"train": curve}, spikes=SPIKES[model])
    write_result(folder / f"{model}{seed}-train.json", trained)
    contexts: Dict[Optional[int], float] = {1024: end + 0.5, 2048: end + 0.75}
    if model == "megalodon":
        contexts[None] = end + 1
    for context, bits in contexts.items():
        chosen = {"segments": 1} if context is None else {"exact_context": context}
        result = make_result(REPORT, "x", {"bits_per_token": bits}, 1, "c", seed, {**about, **chosen})
        write_result(folder / f"{model}{seed}-{context}.json", result)


def printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert main([REPORT, str(folder), "--format", "markdown", "--output", str(folder / "figure.png")]) == 0
    return capsys.readouterr().out


def test_losses_of_the_seeds_and_their_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed in (2, 1, 3):
        for model in ENDS:
            store(tmp_path, model, seed)
    lines = printed(tmp_path, capsys).splitlines()
    training = "1.6000 (1.5000 to 1.7000) | 1.8500 (1.7500 to 1.9500) | 2, 2, 2 |"
    assert f"| MEGALODON | 1,234 | 0.004 | 4.0 M | {training}" in lines
    contexts = "2.1000 (2.0000 to 2.2000) | 2.3500 (2.2500 to 2.4500) | 2.6000 (2.5000 to 2.7000) |"
    assert f"| MEGALODON | {contexts}" in lines
    assert "| Llama-style | 2.6000 (2.5000 to 2.7000) | 2.8500 (2.7500 to 2.9500) | - |" in lines
    assert lines.index(f"| MEGALODON | {contexts}") - 1 == next(i for i, x in enumerate(lines) if "| - |" in x)
    assert (tmp_path / "figure.png").stat().st_size > 10_000
    assert main(["recipes", str(tmp_path), "--format", "markdown"]) == 0
    assert "| megalodon/figure1/gcide/llama | plot | 2.3500 ±0.1000 bits per byte |" in capsys.readouterr().out


def test_one_seed_has_no_spread(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path, "llama", 1)
    assert "| Llama-style | 1,234 | 0.004 | 4.0 M | 2.0000 | 2.2500 | 2 |" in printed(tmp_path, capsys)


def test_the_tables_of_a_document(tmp_path: Path) -> None:
    """They take the results of the figure among those of a folder, and the candidates for the rates from a file."""
    for model in ENDS:
        store(tmp_path / "results", model, 1)
    (training, contexts) = (TABLES[f"{REPORT}{kind}"](tmp_path, ["results"]) for kind in ("", "-contexts"))
    assert [row[0] for row in training.rows] == [row[0] for row in contexts.rows] == ["Llama-style", "MEGALODON"]
    assert contexts.columns[1:] == ["1,024", "2,048", "the whole text"]
    tried = {"megalodon 0.01": 2.0, "megalodon 0.02": 2.5, "llama 0.01": 2.25, "llama 0.02": 2.125}
    write_result(tmp_path / "rates.json", make_result("rates", "x", tried, 1, "c"))
    table = TABLES[f"{REPORT}-rates"](tmp_path, ["rates.json"])
    assert table.columns == ["model", "rate 0.01", "rate 0.02"]
    assert table.rows == [["Llama-style", "2.250", "**2.125**"], ["MEGALODON", "**2.000**", "2.500"]]


def test_scores_alone_are_no_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store(tmp_path, "llama", 1)
    (tmp_path / "llama1-train.json").unlink()
    assert main([REPORT, str(tmp_path), "--output", str(tmp_path / "figure.png")]) == 1
    assert "run the recipe megalodon/figure1" in capsys.readouterr().err


def test_trainings_of_different_lengths_are_not_averaged(tmp_path: Path) -> None:
    curves = [{"curve": {"train": {"tokens": [1] * n, "bits_per_token": [2.0] * n}}} for n in (3, 4)]
    assert list(losses(curves[:1])) == [1e-6]
    with pytest.raises(ResultError, match="different lengths"):
        losses(curves)


def test_the_panel_leaves_out_the_steep_beginning() -> None:
    line = Line([], band=[(0.0, 9.0, 9.5), (1.0, 2.0, 2.1), (2.0, 1.8, 1.9), (3.0, 1.5, 1.6)])
    low, high = limits([line])
    assert 1.0 < low < 1.5 and 2.1 < high < 9.0


@pytest.mark.parametrize("ends", [(1.0, 2.0), (2.0, 4.0)])
def test_bands_are_drawn_in_the_colour_of_their_line(ends: Tuple[float, float], tmp_path: Path) -> None:
    drawn: List[Any] = []
    pyplot = plotting.load_pyplot()
    close = pyplot.close
    pyplot.close = drawn.append
    try:
        line = Line([(0.0, 1.5), (1.0, 2.5)], "a", {"color": "#d95f02"}, [(0.0, *ends), (1.0, *ends)])
        plotting.draw_panels([plotting.Panel([line, Line([(0.0, 1.0)])], {})], tmp_path / "x.png")
    finally:
        pyplot.close = close
    (axes,) = drawn[0].axes
    (band,) = axes.collections
    (path,) = band.get_paths()
    assert (path.vertices[:, 1].min(), path.vertices[:, 1].max()) == ends
    assert band.get_facecolor()[0][:3] == pytest.approx((0xD9 / 255, 0x5F / 255, 0x02 / 255))
    close(drawn[0])
