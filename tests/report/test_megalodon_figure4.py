"""MEGALODON's Figure 4 from result files."""

from pathlib import Path

import pytest

from fairseq_mega.lab.report.command import main
from fairseq_mega.lab.runs.results import make_result, write_result

SPEEDS = {"llama": {4096: 100.0, 32768: 40.0}, "megalodon": {4096: 80.0, 32768: 90.0}}


def write(folder: Path, model: str, size: str = "11m") -> None:
    scores = {}
    for length, rate in SPEEDS[model].items():
        values = {"tokens_per_second": rate, "memory_mib": length / 8, "parameters": 1234, "seconds": length / rate}
        scores.update({f"L={length} {key}": value for key, value in values.items()})
    settings = {"task": size, "model": model, "recipe": f"megalodon/figure4/{size}/{model}", "data": "random tokens"}
    write_result(folder / f"{model}.json", make_result("megalodon-figure4", "x", scores, 1, "c", 1, settings))


def test_speeds_against_llama_beside_the_papers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for model in SPEEDS:
        write(tmp_path, model)
    output = tmp_path / "figure.png"
    assert main(["megalodon-figure4", str(tmp_path), "--format", "markdown", "--output", str(output)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "| 11M, Llama | 1,234 | 32,768 | 40 | - | - | 4,096 |" in lines
    assert "| 11M, MEGALODON | 1,234 | 4,096 | 80 | 0.80x | about 0.94x | 512 |" in lines
    assert "| 11M, MEGALODON | 1,234 | 32,768 | 90 | 2.25x | about 1.32x | 4,096 |" in lines
    assert output.stat().st_size > 10_000
    assert main(["recipes", str(tmp_path)]) == 0
    assert "80 tokens/s at 4,096, 90 tokens/s at 32,768" in capsys.readouterr().out


def test_without_llama_there_is_no_ratio(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, "megalodon")
    options = ["--format", "csv", "--output", str(tmp_path / "figure.svg")]
    assert main(["megalodon-figure4", str(tmp_path), *options]) == 0
    assert '"11M, MEGALODON","1,234","4,096",80,-,-,512' in capsys.readouterr().out
    (tmp_path / "megalodon.json").unlink()
    assert main(["megalodon-figure4", str(tmp_path), *options]) == 1
    assert "megalodon/figure4" in capsys.readouterr().err
