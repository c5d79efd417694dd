"""Options after --: those that recipes set are refused with the setting to give, others stand in the results."""

from pathlib import Path
from typing import List

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.behind import check_extra
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.recording import about
from fairseq_mega.lab.reproduce.revising import parse_setting, revise
from fairseq_mega.lab.reproduce.runs import plan

TEXT = catalogue()["mega/table2/text/mega"]


def check(choices: Choices) -> None:
    check_extra(TEXT, plan(TEXT, 1, Path("data"), "0", choices).train_arguments(), choices.extra)


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["--lr", "1e-9"], "--set optimization.lr=1e-9"),
        (["--lr=0.1,0.2"], "--set 'optimization.lr=[0.1,0.2]'"),
        (["--num-workers", "3", "--dropout", "0.9"], "--set model.dropout=0.9"),
        (["--chunk-size", "-1"], "--set model.encoder_chunk_size=-1"),  # another name of the option
        (["--warmup-updates", "5"], "--set lr_scheduler.warmup_updates=5"),
        (["--adam-betas", "(0.9, 0.999)"], "--set 'optimizer.adam_betas=(0.9, 0.999)'"),
        (["--max-update", "5"], "--max-update N"),
        (["--seed", "5"], "--seeds"),
        (["--bf16"], "--precision bf16"),
        (["--nosuch"], "unrecognized arguments: --nosuch"),
    ],
)
def test_what_a_recipe_sets_is_refused(words: List[str], remedy: str) -> None:
    with pytest.raises(RecipeError) as error:
        check(Choices(Path("out"), extra=tuple(words)))
    assert " after --: " in str(error.value) and remedy in str(error.value)
    if "'" not in remedy and remedy.startswith("--set"):
        revise(TEXT, [parse_setting(remedy.split()[1])])


@pytest.mark.parametrize(
    ("name", "words", "needed"),
    [
        ("mega/table2/text/mega", ["--disable-validation"], "best validation"),
        ("mega/table2/text/mega", ["--log-interval", "2", "--no-save"], "best validation"),
        ("mega/table2/text/mega", ["--checkpoint-suffix", "x"], "best validation"),
        ("mega/table5/enwik8/mega", ["--disable-validation"], "best validation"),
        ("mega/table7/en-de/transformer", ["--no-epoch-checkpoints"], "last 5 epochs"),
        ("mega/table7/en-de/transformer", ["--save-interval=3"], "last 5 epochs"),
        ("mega/table7/en-de/transformer", ["--keep-last-epochs", "2"], "last 5 epochs"),
        ("mega/table6/imagenet/mega", ["--no-last-checkpoints"], "last checkpoint"),
        ("mega/table2/text/mega", ["--no-last-checkpoints", "--keep-best-checkpoints", "2"], ""),
    ],
)
def test_what_the_evaluation_reads_is_saved(name: str, words: List[str], needed: str) -> None:
    """Options that omit it are refused before the training, not after."""
    recipe = catalogue()[name]
    choices = Choices(Path("out"), extra=tuple(words))
    line = plan(recipe, 1, Path("data"), "0", choices).train_arguments()
    if not needed:
        check_extra(recipe, line, choices.extra)
        return
    with pytest.raises(RecipeError, match=f"after --.*{name} .*{needed}"):
        check_extra(recipe, line, choices.extra)


def test_it_is_refused_before_anything_is_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["mega/table2/text/mega", "--smoke", "--out", str(out), "--", "--lr", "1e-9"]) == 1
    assert "--lr 1e-9 after --" in capsys.readouterr().err and not out.exists()


def test_what_changes_numbers_stands_in_the_result(tmp_path: Path) -> None:
    plain = Choices(tmp_path)
    running = Choices(tmp_path, extra=("--log-interval", "1", "--num-workers=2", "--save-interval", "2"))
    other = Choices(tmp_path, extra=("--stop-min-lr", "-1", "--num-workers", "2", "--sentence-avg"))
    check(running)
    check(other)
    check(Choices(tmp_path, gpus=1, precision="fp16", extra=("--fp16-init-scale", "4")))
    told = [about(plan(TEXT, 1, Path("data"), "0", choices), choices) for choices in (plain, running, other)]
    assert "extra" not in told[0] and told[0]["conditions"] == told[1]["conditions"] != told[2]["conditions"]
    assert told[0] == {**told[1], "run": told[0]["run"]}
    assert told[2]["extra"] == "--stop-min-lr -1 --sentence-avg"
