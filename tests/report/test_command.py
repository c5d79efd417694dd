"""The one command of all reports: its errors, and the marks of toy runs."""

from pathlib import Path
from typing import Any

from fairseq_mega.lab.report import command


def test_an_error_takes_one_line(tmp_path: Path, capsys: Any) -> None:
    assert command.main(["table5", str(tmp_path / "absent")]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"table5: error: {tmp_path / 'absent'} ") and error.count("\n") == 1
    (tmp_path / "damaged.json").write_text("{")
    assert command.main(["table2", str(tmp_path)]) == 1
    assert "damaged.json: not a JSON result file" in capsys.readouterr().err


def test_results_of_a_toy_run_are_marked(tmp_path: Path, capsys: Any) -> None:
    assert command.main(["table4", str(tmp_path), "--smoke"]) == 0
    assert capsys.readouterr().out.endswith("SMOKE RUN on invented data: these numbers are meaningless\n")
