"""Checks before data are made, which may take hours, and before the first training."""

from pathlib import Path
from typing import List

import pytest

from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.data import Data
from fairseq_mega.lab.reproduce.results import about
from fairseq_mega.lab.reproduce.settings import check_settings
from tests.support.jobs import TEXT, run_of


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (["--", "--lr=0.1,0.2"], "--lr"),
        (["--", "--num-workers", "3", "--dropout", "0.9"], "--dropout"),
        (["--", "--chunk-size", "64"], "--encoder-chunk-size"),  # another name of the option
        (["--", "--max-update", "5"], "--max-update"),
        (["--", "--seed", "5"], "--seed"),
        (["--", "--bf16"], "--bf16"),
        (["--max-update", "25001"], "--max-update"),
        (["--set", "model.attention_activation_fn=gelu"], "--attention-activation-fn"),
        (["--checkpoint", "x.pt", "--precision", "bf16"], "--precision"),  # scores are of float32
    ],
    ids=" ".join,
)
def test_options_whose_result_would_name_another_training_are_refused(
    words: List[str], option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Data, "make", lambda *given: pytest.fail("data were made"))
    out = tmp_path / "out"
    try:
        status: object = main([TEXT, "--smoke", "--out", str(out), *words])
    except SystemExit as end:
        status = end.code
    assert status == 1 and option in capsys.readouterr().err and not out.exists()


def test_options_after_the_dashes_stand_in_the_result(tmp_path: Path) -> None:
    told = []
    for extra in ((), ("--log-interval", "1", "--num-workers=2"), ("--stop-min-lr", "-1", "--sentence-avg")):
        job = run_of(TEXT, tmp_path, extra=extra)
        check_settings(job.recipe, job.choices)
        told.append(about(job))
    assert "extra" not in told[0] and told[0]["conditions"] == told[1]["conditions"] != told[2]["conditions"]
    assert told[0] == {**told[1], "run": told[0]["run"]}
    assert told[2]["extra"] == "--stop-min-lr -1 --sentence-avg"


def test_data_of_all_tasks_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table 2 without data names at once those of Retrieval, before ListOps is generated."""
    words = ["mega/table2", "--data", tmp_path / "data", "--out", tmp_path / "out", "--gpus", "0"]
    assert main(list(map(str, words))) == 1
    assert "retrieval" in capsys.readouterr().err and not (tmp_path / "data").exists()
