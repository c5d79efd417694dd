"""The papers' tables as Markdown, for a terminal and as CSV, and where their numbers come from."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.report import command
from fairseq_mega.lab.runs import provenance
from fairseq_mega.lab.runs.results import make_result, write_result
from fairseq_mega.lab.runs.text_tables import FORMATS, Table

TABLE = Table(["name", "a|b"], [["one, two", "1"], ["three", ""]])


def test_forms_of_a_table() -> None:
    assert FORMATS["markdown"](TABLE) == "| name | a\\|b |\n|---|---|\n| one, two | 1 |\n| three |  |"
    assert FORMATS["terminal"](TABLE) == "name      a|b\none, two    1\nthree"
    assert list(csv.reader(io.StringIO(FORMATS["csv"](TABLE)))) == [["name", "a|b"], ["one, two", "1"], ["three", ""]]


def store(folder: Path, seed: int, bleu: float) -> None:
    settings = {"direction": "en-de", "attention": "softmax", "checkpoint": "best", "data": "released"}
    settings["recipe"] = "mega/table7/en-de/mega_softmax"
    scores = {"tokenized_bleu": bleu, "sacrebleu": bleu - 1}
    result = make_result("wmt16-newstest2014", "MEGA", scores, 3003, "command", seed, settings)
    result.update(git_revision="0123456789abcdef-modified", date="2026-01-02T03:04:05+00:00")
    result["hardware"].update(processor="CPU X", cores=3, gpus=[])
    write_result(folder / f"{seed}.json", result)


def test_table7_as_markdown_and_csv(tmp_path: Path, capsys: Any) -> None:
    store(tmp_path, 1, 28.0)
    store(tmp_path, 2, 30.0)
    assert command.main(["table7", str(tmp_path), "--format", "markdown"]) == 0
    text = capsys.readouterr().out
    assert "|   measured, best checkpoint | 29.00 ±1.41 (2) | 28.00 ±1.41 (2) | - | - |\n" in text
    assert "| MEGA laplace, paper | 28.95 | 28.27 | 32.81 | 32.22 |\n|   measured | not yet | - | - | - |\n" in text
    origin = "| mega/table7/en-de/mega_softmax, seed 2 | released | CPU X, 3 cores | 01234567-modified | 2026-01-02 |"
    assert origin in text
    assert command.main(["table7", str(tmp_path), "--format", "csv"]) == 0
    table, origins = (list(csv.reader(io.StringIO(part))) for part in capsys.readouterr().out.split("\n\n"))
    assert {len(row) for row in table} == {5} and table[1] == ["Transformer base (published), quoted", "27.30", *"---"]
    assert origins[0] == ["measured", "data", "machine", "revision", "date"] and len(origins) == 3


@pytest.mark.parametrize("name", ["table2", "table3", "table4", "table5"])
def test_cells_that_were_not_run(name: str, tmp_path: Path, capsys: Any) -> None:
    assert command.main([name, str(tmp_path), "--format", "csv"]) == 0
    head, *rows = csv.reader(io.StringIO(capsys.readouterr().out))
    assert {len(row) for row in rows} == {len(head)}
    assert sum("not yet" in row for row in rows) >= 2


def test_machines_and_revisions() -> None:
    trained = {"hardware": {"processor": "CPU", "cores": 2}, "settings": {"trained_on": ["H200", "H200"]}}
    assert provenance.machine_of(trained) == "2 x H200"
    measured = {"hardware": {"processor": "CPU", "cores": 2, "gpus": ["A100"]}}
    assert provenance.machine_of(measured) == "1 x A100"
    assert provenance.revision_of({}) == "-"


def test_table5_names_a_model_of_ones_own(tmp_path: Path, capsys: Any) -> None:
    for model in ("mega", "mega-relu-gate"):
        scores = {"bits_per_token": 1.5, "tokens_per_second": 3.0}
        settings = {"parameters": 4, "segments": 50, "chunk_size": 8}
        result = make_result("table5", f"enwik8.{model}.seed1", scores, 8, "command", 1, settings)
        write_result(tmp_path / f"{model}.json", result)
    assert command.main(["table5", str(tmp_path), "--format", "csv"]) == 0
    names = [row[0].strip() for row in csv.reader(io.StringIO(capsys.readouterr().out)) if row]
    assert {"MEGA, measured (K = 50, chunk 8), seed 1", "mega-relu-gate, measured (K = 50, chunk 8), seed 1"} <= {
        *names
    }
