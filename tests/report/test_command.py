"""The one command of all reports: what it imports, and its errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

from fairseq_mega.lab.report import command


def test_a_table_needs_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    program = (
        "import sys; from fairseq_mega.lab.report.command import main; "
        "assert main(['table2', sys.argv[1]]) == main(['table5', sys.argv[1]]) == 0; "
        "assert not {'torch', 'fairseq', 'matplotlib'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True, stdout=subprocess.DEVNULL)


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
