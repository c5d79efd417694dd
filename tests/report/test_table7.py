"""The row of Table 7 printed from result files."""

from pathlib import Path
from typing import Any, Dict

from fairseq_mega.lab.report import command
from fairseq_mega.lab.report.table7 import TABLE7
from fairseq_mega.lab.runs import results

(BENCHMARK,) = TABLE7.benchmarks


def store(
    folder: Path, direction: str, seed: int, tokenized: float, sacre: float, benchmark: str = BENCHMARK, **more: Any
) -> None:
    settings: Dict[str, Any] = {"direction": direction, "attention": "softmax", "checkpoint": "average", **more}
    scores = {"tokenized_bleu": tokenized, "sacrebleu": sacre}
    result = results.make_result(benchmark, "MEGA", scores, 3003, "command", seed=seed, settings=settings)
    results.write_result(folder / f"{benchmark}.{direction}.{seed}.json", result)


def test_the_measured_row_stands_under_the_papers(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "en-de", 1, 29.0, 28.0)
    store(tmp_path, "en-de", 11, 30.0, 28.5)
    store(tmp_path, "de-en", 1, 32.5, 32.25)
    store(tmp_path, "de-en", 1, 99.0, 99.0, benchmark=BENCHMARK + "-smoke")
    assert command.main(["table7", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    paper = next(i for i, line in enumerate(lines) if line.startswith("MEGA softmax, paper"))
    assert lines[paper].split()[-4:] == ["29.18", "28.47", "32.90", "32.35"]
    row = lines[paper + 1]
    assert row.startswith("  measured, averaged checkpoints")
    assert row.split()[3:] == ["29.50", "±0.71", "(2)", "28.25", "±0.35", "(2)", "32.50", "32.25"]
    assert lines[paper + 2].startswith("MEGA laplace, paper")
    assert "seeds 1, 11; 3003 sentences" in lines[-1]


def test_seeds_of_other_settings_are_refused(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, "en-de", 1, 29.0, 28.0, conditions="0", max_update=500000)
    store(tmp_path, "de-en", 1, 29.0, 28.0, conditions="1", max_update=500)
    assert command.main(["table7", str(tmp_path)]) == 0
    store(tmp_path, "en-de", 2, 29.0, 28.0, conditions="1", max_update=500)
    assert command.main(["table7", str(tmp_path)]) == 1
    assert "max_update: 500000 and 500" in capsys.readouterr().err


def test_no_results_are_an_error(tmp_path: Path, capsys: Any) -> None:
    assert command.main(["table7", str(tmp_path / "absent")]) == 1
    assert "does not exist" in capsys.readouterr().err
    store(tmp_path, "en-de", 1, 29.0, 28.0)
    assert command.main(["table7", str(tmp_path), "--smoke"]) == 1
    assert "has no result of wmt16-newstest2014-smoke" in capsys.readouterr().err
