"""fairseq-hydra-train: an error of the user's takes one line, and settings are checked as options of fairseq-train."""

from pathlib import Path
from typing import List

import pytest

from tests.support import hydra_runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hydra_runs.write(tmp_path_factory.mktemp("hydra") / "config")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["task.data=/nowhere"], "/nowhere/dict.en.txt does not exist"),
        (["+model.encoder_chunk_size=0"], "--encoder-chunk-size"),
        (["lr_scheduler.warmup_updates=9"], "--total-num-update 3 must be above --warmup-updates 9"),
        (["checkpoint.restore_file=none.pt"], "--restore-file none.pt does not exist"),
        (["dataset.max_tokens=2"], "--max-tokens 2"),
        (["optimizer._name=adan"], "'adan' is no name of"),
        (["optimizer.adam_betas='(1,2)'"], "--adam-betas"),
        (["task.target_lang=null"], "--target-lang"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_an_error_of_the_users_takes_one_line(settings: List[str], said: str, folder: Path, tiny_corpus: Path) -> None:
    done = hydra_runs.run(folder, tiny_corpus, settings)
    assert done.returncode != 0 and "Traceback" not in done.stderr, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("fairseq-hydra-train: error: ")]
    assert said in line


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["FAIRSEQ_MEGA_TRACEBACK", "HYDRA_FULL_ERROR"])
def test_the_traceback_is_kept_on_request(variable: str, folder: Path, tiny_corpus: Path) -> None:
    done = hydra_runs.run(folder, tiny_corpus, ["task.data=/nowhere"], **{variable: "1"})
    assert done.returncode != 0 and "Traceback" in done.stderr
