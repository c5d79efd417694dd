"""Checks before data are made, which may take hours, and before the first training."""

from pathlib import Path
from typing import Any, List

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce import runner
from fairseq_mega.lab.reproduce.checks import check_options
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.results import about
from fairseq_mega.lab.reproduce.settings import Choices

TEXT = "mega/table2/text/mega"


@pytest.fixture(autouse=True)
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "prepare_all", lambda *given: pytest.fail("data were made"))


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--lr", "1e-9"], "--set optimization.lr="),
        (["--lr=0.1,0.2"], "--set optimization.lr="),
        (["--num-workers", "3", "--dropout", "0.9"], "--set model.dropout="),
        (["--chunk-size", "64"], "--set model.encoder_chunk_size="),  # another name of the option
        (["--warmup-updates", "5"], "--set lr_scheduler.warmup_updates="),
        (["--max-update", "5"], "--max-update N"),
        (["--seed", "5"], "--seeds"),
        (["--bf16"], "--precision bf16"),
        (["--nosuch"], "--nosuch"),
    ],
)
def test_options_after_the_dashes_that_a_recipe_sets_are_refused(
    words: List[str], remedy: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else a result would name a setting that its training did not have."""
    out = tmp_path / "out"
    assert main([TEXT, "--smoke", "--out", str(out), "--", *words]) == 1
    error = capsys.readouterr().err
    assert " after --" in error and remedy in error and not out.exists()


def test_options_after_the_dashes_stand_in_the_result(tmp_path: Path) -> None:
    told = []
    for extra in ((), ("--log-interval", "1", "--num-workers=2"), ("--stop-min-lr", "-1", "--sentence-avg")):
        job = plan(catalogue()[TEXT], 1, Path("data"), "0", Choices(tmp_path, extra=extra))
        check_options(job)
        told.append(about(job))
    assert "extra" not in told[0] and told[0]["conditions"] == told[1]["conditions"] != told[2]["conditions"]
    assert told[0] == {**told[1], "run": told[0]["run"]}
    assert told[2]["extra"] == "--stop-min-lr -1 --sentence-avg"


@pytest.mark.parametrize(
    "words",
    [
        *(["--checkpoint", "x.pt", *more] for more in (["--seeds", "2"], ["--max-update", "5"], ["--only-train"])),
        *(["--checkpoint", "x.pt", *more] for more in (["--launcher", "print"], ["--precision", "bf16"])),
        ["--checkpoint", "x.pt", "--set", "optimization.lr=[0.1]"],
        ["--checkpoint", "x.pt", "--", "--lr", "0.1"],
        *([shown, *more] for shown in ("--print", "--yaml") for more in (["--bf16"], ["--seeds", "2"], ["--smoke"])),
        *([shown, *more] for shown in ("--print", "--yaml") for more in (["--out", "x"], ["--", "--lr", "0.1"])),
        *(["--gpus", "x"], ["--seeds", "1,1"]),
        ["--max-update", "5", "--set", "optimization.max_update=6"],
    ],
    ids=" ".join,
)
def test_options_without_effect_are_refused(words: List[str], tmp_path: Path, capsys: Any) -> None:
    """In one line that names the last option."""
    named = [word for word in words if word.startswith("--") and word != "--"][-1].replace("--bf16", "--precision")
    shown = {"--print", "--yaml"} & set(words)
    given = [TEXT, *([] if shown else ["--out", str(tmp_path / "out")]), *words]
    try:
        status = main(given)
    except SystemExit as end:
        status = int(end.code or 0)
    error = capsys.readouterr().err
    assert status == 1 and named in error and error.count("\n") == 1 and not (tmp_path / "out").exists()


def test_data_of_all_tasks_come_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Table 2 without data names at once those of Retrieval, before ListOps is generated."""
    words = ["mega/table2", "--data", tmp_path / "data", "--out", tmp_path / "out", "--gpus", "0"]
    assert main(list(map(str, words))) == 1
    assert "retrieval" in capsys.readouterr().err and not (tmp_path / "data").exists()
