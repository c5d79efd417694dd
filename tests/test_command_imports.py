"""A command imports what it needs: help, lists and tables no torch, and parts of the library no fairseq."""

import subprocess
import sys
from pathlib import Path
from typing import Dict, Set, Tuple

import pytest

from tests.support.helpers import REPOSITORY

HEAVY = {"torch", "fairseq", "numpy"}
FAIRSEQ = {"fairseq", "fairseq_cli", "hydra", "omegaconf"}
REPRODUCE = "from fairseq_mega.lab.reproduce.command import main; main(['mega/table2', {}])"
REPORT = "from fairseq_mega.lab.report.command import main; assert main(['table2', '.']) == main(['table5', '.']) == 0"
CASES: Dict[str, Tuple[str, Set[str]]] = {  # a program, and what it may not import
    "train --help": ("from fairseq_mega.cli.console import run; run('train', ['--help'])", {*HEAVY, "yaml"}),
    "prepare --help": ("from fairseq_mega.lab.prepare.command import main; main(['--help'])", HEAVY),
    **{
        f"reproduce {words}": (REPRODUCE.format(words), {*HEAVY, "fairseq_mega.lab.prepare"})
        for words in ("'--list', '--gpus', '0'", "'--print'", "'--yaml'")
    },
    "report": (REPORT, {"torch", "fairseq", "matplotlib"}),
    "benchmarks --help": ("from fairseq_mega.lab.benchmarks.command import main; main(['--help'])", {"torch"}),
    "a measurement of a layer": (
        "import torch, fairseq_mega.lab.benchmarks.layer; print()",
        {"fairseq", "torch._dynamo"},
    ),
    "ops and modules": ("import fairseq_mega.ops.ema, fairseq_mega.modules; print()", FAIRSEQ),
}


@pytest.mark.parametrize("name", CASES)
def test_little_is_imported(name: str, tmp_path: Path) -> None:
    program, without = CASES[name]
    lines = ["import sys", f"sys.path.insert(0, {str(REPOSITORY)!r})", f"try: {program}", "except SystemExit: pass"]
    lines.append(f"print([name for name in {sorted(without)!r} if name in sys.modules], file=sys.stderr)")
    command = [sys.executable, "-c", "\n".join(lines)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True)
    assert done.stdout and done.stderr.splitlines()[-1] == "[]"
