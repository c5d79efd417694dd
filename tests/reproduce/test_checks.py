"""Checks before data are made, which may take hours, and before the first training."""

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import Any, List, Optional

import pytest

from fairseq_mega.lab.prepare.layouts import Layout
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce import checks, data, runner
from fairseq_mega.lab.reproduce.checks import check_disk, check_extra
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.counts import LEAST, bytes_of_job, counts_of, kept
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.results import about
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.runs.stages import stage

TRANSLATION, TEXT = "mega/table7/en-de/mega_softmax", "mega/table2/text/mega"


@pytest.fixture(autouse=True)
def nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "prepare_all", lambda *given: pytest.fail("data were made"))


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch) -> None:
    """All data are there."""
    monkeypatch.setattr(Layout, "is_there", lambda self, folder: True)
    monkeypatch.setattr(data, "check_origin", lambda *unused: None)


def test_what_scores_a_translation(monkeypatch: pytest.MonkeyPatch, there: None, tmp_path: Path) -> None:
    checks.check([catalogue()[TRANSLATION]], Choices(tmp_path), 0)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *a: None if name == "sacremoses" else find(name, *a))
    with pytest.raises(RecipeError, match="sacremoses"):
        checks.check([catalogue()[TRANSLATION]], Choices(tmp_path), 0)
    checks.check([catalogue()[TEXT]], Choices(tmp_path), 0)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--max-update", "8", "--set", "lr_scheduler.warmup_updates=10"], "--warmup-updates 10"),
        (["--max-update", "8", "--set", "lr_scheduler.warmup_updates=7"], None),
        (["--max-update", "500", "--set", "lr_scheduler.total_num_update=500"], None),  # the warm-up is shortened
        (["--set", "lr_scheduler.total_num_update=500"], "--warmup-updates"),
        (["--keep-schedule", "--max-update", "8"], None),
    ],
)
@pytest.mark.parametrize("name", [TEXT, "mega/table5/enwik8/mega", TRANSLATION])
def test_a_schedule_that_does_not_fit_its_updates(
    name: str,
    words: List[str],
    told: Optional[str],
    there: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(runner, "prepare_all", lambda *unused: {})
    monkeypatch.setattr(runner, "jobs_of", lambda *unused: [])
    out = tmp_path / "out"
    status = main([name, *words, "--gpus", "0", "--out", str(out), "--only-train"])
    error = capsys.readouterr().err
    assert (status, error) == (0, "") if told is None else (status == 1 and told in error)
    assert not out.exists()


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--lr", "1e-9"], "--set optimization.lr="),
        (["--lr=0.1,0.2"], "--set optimization.lr="),
        (["--num-workers", "3", "--dropout", "0.9"], "--set model.dropout="),
        (["--chunk-size", "-1"], "--set model.encoder_chunk_size="),  # another name of the option
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
        check_extra(job)
        told.append(about(job))
    assert "extra" not in told[0] and told[0]["conditions"] == told[1]["conditions"] != told[2]["conditions"]
    assert told[0] == {**told[1], "run": told[0]["run"]}
    assert told[2]["extra"] == "--stop-min-lr -1 --sentence-avg"


def test_a_disk_without_room_for_the_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training that two tables share counts once, what it has written already not at all, nor does a finished one."""
    names, out = (TEXT, "mega/table3/text/softmax", "mega/table2/image/mega"), tmp_path / "out"
    jobs = [plan(catalogue()[name], 1, Path("data"), "0", Choices(out)) for name in names]
    assert jobs[0].folder == jobs[1].folder
    sizes = [bytes_of_job(job.recipe, job.config, counts_of(job.recipe).parameters) for job in jobs]

    def has_room(free: int) -> bool:
        monkeypatch.setattr(checks.shutil, "disk_usage", lambda folder: SimpleNamespace(free=free))
        try:
            check_disk(jobs, out)
        except RecipeError as error:
            assert "--out" in str(error)
            return False
        return True

    need = sizes[0] + sizes[2]
    assert has_room(need) and not has_room(need - 1)
    (jobs[0].folder / "checkpoints").mkdir(parents=True)
    (jobs[0].folder / "checkpoints" / "checkpoint_last.pt").write_bytes(bytes(1000))
    assert has_room(need - 1000) and not has_room(need - 1001)
    for job in jobs[:2]:
        stage(job.folder, job.evaluation_stage, lambda: None)
    assert has_room(sizes[2]) and not has_room(sizes[2] - 1)


def test_kept_checkpoints() -> None:
    """The last, the best and one that is being written; of translations five epochs more, and their average."""
    translation, text = catalogue()[TRANSLATION], catalogue()[TEXT]
    assert kept(text.config["checkpoint"]) == 3 and kept(translation.config["checkpoint"]) == 8
    assert kept(catalogue()["mega/table5/enwik8/mega"].config["checkpoint"]) == 4
    assert bytes_of_job(translation, translation.config, 1000) == LEAST + (8 * 12 + 4) * 1000


@pytest.mark.parametrize("output", ["x.docx", "/dev/null/x.png"])
def test_an_image_that_cannot_be_written(output: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figure4", "--output", output, "--smoke", "--out", str(tmp_path / "out")]) == 1
    assert f"--output {output}" in capsys.readouterr().err and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "words",
    [
        *(["--checkpoint", "x.pt", *more] for more in (["--seeds", "2"], ["--max-update", "5"], ["--only-train"])),
        *(["--checkpoint", "x.pt", *more] for more in (["--launcher", "print"], ["--precision", "bf16"])),
        ["--checkpoint", "x.pt", "--set", "optimization.lr=[0.1]"],
        ["--checkpoint", "x.pt", "--", "--lr", "0.1"],
        *([shown, *more] for shown in ("--print", "--yaml") for more in (["--bf16"], ["--seeds", "2"], ["--smoke"])),
        *([shown, *more] for shown in ("--print", "--yaml") for more in (["--out", "x"], ["--", "--lr", "0.1"])),
        *(["--keep-schedule"], ["--gpus", "x"], ["--seeds", "1,1"], ["--slurm", "partition"]),
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
