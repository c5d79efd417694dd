"""Commands of fairseq: an error of the user's takes one line; fairseq-hydra-train checks settings as options."""

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from fairseq_mega.compat.errors import command_of
from tests.support import grids, helpers, hydra_runs

TRAINING = ["--arch", "mega_tiny", "--optimizer", "adam"]
PLUGIN = ["--user-dir", str(helpers.REPOSITORY / "fairseq_mega"), "--cpu"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hydra_runs.write(tmp_path_factory.mktemp("hydra") / "config")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    grids.mostly_exhaustive(
        [
            (["task.data=/nowhere"], "/nowhere/dict.en.txt"),
            (["+model.encoder_chunk_size=0"], "--encoder-chunk-size"),
            (["checkpoint.restore_file=none.pt"], "--restore-file none.pt"),
            (["optimizer._name=adan"], "KeyError: 'adan'"),
            (["checkpoint.best_checkpoint_metric=acuracy"], "--best-checkpoint-metric acuracy"),
            (["task.target_lang=null"], "--source-lang en"),
        ],
        kept=3,
    ),
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_error_of_the_users_takes_one_line(settings: List[str], said: str, folder: Path, tiny_corpus: Path) -> None:
    done = hydra_runs.run(folder, tiny_corpus, settings)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fairseq-hydra-train: error: ")]
    assert said in line


@pytest.mark.slow
@pytest.mark.parametrize("variable", grids.mostly_exhaustive(["FAIRSEQ_MEGA_TRACEBACK", "HYDRA_FULL_ERROR"], kept=1))
def test_the_traceback_is_kept_on_request(variable: str, folder: Path, tiny_corpus: Path) -> None:
    done = hydra_runs.run(folder, tiny_corpus, ["task.data=/nowhere"], **{variable: "1"})
    assert done.returncode != 0 and "Traceback" in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "arguments", "said"),
    grids.mostly_exhaustive(
        [
            ("fairseq-train", [*TRAINING, "--max-tokens", "100"], "/nowhere"),
            ("fairseq-generate", ["--path", "none.pt"], "/nowhere"),
            ("fairseq_cli.train", TRAINING, "--max-tokens or --batch-size"),
            ("fairseq-validate", ["--path", "none.pt", "--max-tokens", "9"], "KeyError: None"),
            ("fairseq-eval-lm", ["--path", "none.pt"], "/nowhere/dict.txt"),
        ],
        kept=3,
    ),
)
def test_a_command_of_fairseq_with_the_plugin(command: str, arguments: List[str], said: str, tmp_path: Path) -> None:
    script = Path(sys.executable).parent / command
    program = [sys.executable, "-m", command] if "." in command else [str(script)]
    done = subprocess.run(
        [*program, "/nowhere", *PLUGIN, *arguments], capture_output=True, text=True, cwd=tmp_path, env={**os.environ}
    )
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"fairseq-{command.split('-', 1)[-1].rpartition('.')[2]}: error: ") and said in last


def test_other_programs_keep_their_tracebacks() -> None:
    found = {
        name: command_of(Path(name))
        for name in ("/env/bin/fairseq-eval-lm", "/site/fairseq_cli/eval_lm.py", "fairseq-train.exe", "train.py", "-c")
    }
    assert list(found.values()) == ["fairseq-eval-lm", "fairseq-eval-lm", "fairseq-train", None, None]
