"""The disk of checkpoints: reckoned from the models, shown by --list, and asked for before the first training."""

from pathlib import Path
from types import SimpleNamespace
from typing import List, NoReturn, Optional, Sequence

import pytest

from fairseq_mega.lab.inspect.recipe_models import parameters
from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce import runner, storage
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.runs import Run, plan
from fairseq_mega.lab.reproduce.storage import bytes_of_run, check_disk, kept
from fairseq_mega.lab.runs.stages import stage
from tests.support import lra_data

PUBLISHED = {  # parameters: MEGA, Table 5; the README of its code; counts of models that were built
    "mega/table5/wikitext103/mega": 252e6,
    "mega/table5/wikitext103/transformer": 247e6,
    "mega/table5/enwik8/mega": 39e6,
    "mega/table7/en-de/mega_softmax": 67e6,
    "comparison/wikitext2/mega": 1_581_440,
    "comparison/wikitext2/transformer": 1_579_136,
    "mega/table4/speech/base": 343_134,
    "mega/table4/speech/big": 475_890,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_about_the_published(name: str) -> None:
    found, published = parameters(catalogue()[name]), PUBLISHED[name]
    assert abs(found - published) < (0.01 if published > 2e8 else 0.15) * published


def test_kept_checkpoints() -> None:
    """The last, the best and one that is being written; of translations five epochs more, and their average."""
    translation, text = catalogue()["mega/table7/en-de/mega_softmax"], catalogue()["mega/table2/text/mega"]
    assert kept(text.config["checkpoint"]) == 3 and kept(translation.config["checkpoint"]) == 8
    assert kept(catalogue()["mega/table5/enwik8/mega"].config["checkpoint"]) == 4
    size = parameters(translation)
    assert bytes_of_run(translation, translation.config) == storage.LEAST + (8 * 12 + 4) * size


def runs_of(out: Path, *names: str) -> List[Run]:
    return [plan(catalogue()[name], 1, Path("data"), "0", Choices(out)) for name in names]


def test_too_little_space_is_said_with_the_remedy(tmp_path: Path) -> None:
    """A run that two tables share counts once, what it has written already not at all, and a finished one neither."""
    runs = runs_of(tmp_path / "out", "mega/table2/text/mega", "mega/table3/text/softmax", "mega/table2/image/mega")
    assert runs[0].folder == runs[1].folder
    need = sum(bytes_of_run(run.recipe, run.config) for run in (runs[0], runs[2]))
    check_disk(runs, tmp_path / "out", lambda folder: need)
    with pytest.raises(RecipeError, match="140 MB, and 140 MB .*--out"):
        check_disk(runs, tmp_path / "out", lambda folder: need - 1)
    checkpoint = runs[0].folder / "checkpoints" / "checkpoint_last.pt"
    checkpoint.parent.mkdir(parents=True)
    checkpoint.write_bytes(bytes(1000))
    check_disk(runs, tmp_path / "out", lambda folder: need - 1000)
    with pytest.raises(RecipeError):
        check_disk(runs, tmp_path / "out", lambda folder: need - 1001)
    for run in runs[:2]:
        stage(run.folder, run.evaluation_stage, lambda: None)
    check_disk(runs, tmp_path / "out", lambda folder: bytes_of_run(runs[2].recipe, runs[2].config))


def test_a_training_that_was_stopped_in_its_schedule_needs_no_space(tmp_path: Path) -> None:
    """Its evaluation has a stage for each number of updates."""
    recipe, out = catalogue()["mega/table2/text/mega"], tmp_path / "out"
    short, long = (
        plan(recipe, 1, Path("data"), "0", Choices(out, max_update=updates, keep_schedule=True)) for updates in (5, 6)
    )
    assert short.folder == long.folder
    stage(short.folder, short.evaluation_stage, lambda: None)
    check_disk([short], out, lambda folder: 0)
    with pytest.raises(RecipeError, match="need"):
        check_disk([long], out, lambda folder: 0)


def test_the_command_looks_before_it_trains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage.shutil, "disk_usage", lambda folder: SimpleNamespace(free=10_000_000))
    monkeypatch.setattr(runner, "perform_all", lambda *given, **more: pytest.fail("a training was started"))
    data = lra_data.write_images(tmp_path / "image", pixels=1024)
    assert main(["table2/image/mega", "--data", str(data), "--out", str(tmp_path / "out"), "--gpus", "0"]) == 1
    assert "516 MB, and 10 MB " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("symbols", "words", "refused"),
    [
        (28, [], "--adaptive-input-cutoff 2000,10000: the dictionary has only 32 symbols"),
        (9000, [], "the dictionary has only 9004 symbols"),
        (9997, [], None),
        (9000, ["--set", "model.adaptive_input_cutoff=9,99", "--set", "model.adaptive_softmax_cutoff=9,99"], None),
    ],
)
def test_the_command_looks_at_the_dictionary_before_it_trains(
    symbols: int,
    words: List[str],
    refused: Optional[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Adaptive tables have bands of a dictionary, which one of bytes or of few pieces is too small for."""
    begun: List[object] = []

    def begin(runs: Sequence[object], *given: object, **more: object) -> NoReturn:
        begun.extend(runs)
        raise RecipeError("stopped by the test")

    monkeypatch.setattr(runner, "perform_all", begin)
    data = tmp_path / "data-bin"
    data.mkdir()
    for name in ("train", "valid", "test"):
        for ending in ("bin", "idx"):
            (data / f"{name}.{ending}").write_bytes(b"0" * 9)
    (data / "dict.txt").write_text("".join(f"w{number} 1\n" for number in range(symbols)))
    given = ["comparison/wikitext2/mega", "--data", data, "--out", tmp_path / "out", "--gpus", "0", *words]
    assert main([str(word) for word in given]) == 1
    error = capsys.readouterr().err
    assert (refused or "stopped by the test") in error and bool(begun) is (refused is None)
    if refused:
        assert "comparison/bytes/mega" in error and str(data / "dict.txt") in error


def test_the_list_says_how_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--list", "--gpus", "0", "--root", str(tmp_path), "--out", str(tmp_path)]
    assert main(["table7/en-de/mega_softmax", "table2/text/mega", *options]) == 0
    lines = capsys.readouterr().out.splitlines()[1:-1]
    assert [("184 MB " in line, "31.6 GB " in line) for line in lines] == [(False, True), (True, False)]
