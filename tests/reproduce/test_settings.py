"""Other values of recipes: where they stand, which results they tell apart, and that a tiny form keeps them."""

from pathlib import Path
from typing import Any

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.recipes.recipe import RecipeError, preset
from fairseq_mega.lab.reproduce.checks import check_options
from fairseq_mega.lab.reproduce.results import about
from fairseq_mega.lab.reproduce.settings import (
    Choices,
    choose,
    parse_setting,
    revise,
    revise_all,
)
from tests.support.jobs import FIGURE6, PANELS, TEXT, run_of


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optimization.lr=1e-3", [0.001]),
        ("optimization.lr=[0.1, 1e-2]", [0.1, 0.01]),
        ("optimization.max_update=30", 30),
        ("lr_scheduler.total_num_update=30", 30.0),
        ("optimizer.adam_betas=(0.9, 0.999)", "(0.9, 0.999)"),
        ("checkpoint.no_epoch_checkpoints=false", False),
        ("mega:model.dropout=0.3", 0.3),
        ("text:evaluate.early_epoch=2", 2),
    ],
)
def test_a_value_has_the_type_of_the_recipes(text: str, value: Any) -> None:
    setting = parse_setting(text)
    found = setting.options_of(revise(catalogue()[TEXT], [setting]))[setting.option]
    assert found == value and type(found) is type(value)


def test_a_cell_tells_its_settings(tmp_path: Path) -> None:
    """Another chunk is another point of the same table or figure; another learning rate is not."""
    plain, chunk = run_of(TEXT, tmp_path), run_of(TEXT, tmp_path, "model.encoder_chunk_size=64")
    rate = run_of(TEXT, tmp_path, "optimization.lr=0.1")
    assert chunk.recipe.cell == {**plain.recipe.cell, "chunk": 64} and ".c64." in chunk.name
    assert rate.recipe.cell == plain.recipe.cell and len({run.name for run in (plain, chunk, rate)}) == 3
    told = Choices(tmp_path, settings=(parse_setting("model.encoder_chunk_size=64"),))
    untold = Choices(tmp_path, settings=(parse_setting("optimization.lr=0.1"),))
    base = Choices(tmp_path).conditions(plain.recipe)
    assert told.conditions(chunk.recipe) == base != untold.conditions(rate.recipe)
    assert about(rate)["set"] == {"optimization.lr": "0.1"} and "set" not in about(plain)


def test_a_setting_of_other_recipes_changes_no_conditions(tmp_path: Path) -> None:
    choices = Choices(tmp_path, settings=(parse_setting("transformer:optimization.lr=0.1"),))
    mega, transformer = catalogue()[TEXT], catalogue()["mega/table2/text/transformer"]
    assert choices.conditions(mega) == Choices(tmp_path).conditions(mega)
    assert choices.conditions(transformer)["overrides"] == {"optimization.lr": "0.1"}
    found = revise_all([mega, transformer], choices.settings)
    assert [recipe.config["optimization"]["lr"] for recipe in found] == [[0.004], [0.1]]


def test_the_tiny_form_keeps_what_is_given(tmp_path: Path) -> None:
    texts = ["model.decoder_chunk_size=8", f"evaluate.contexts={PANELS}"]
    run = run_of(FIGURE6, tmp_path, *texts, smoke=True)
    assert run.config["model"]["decoder_chunk_size"] == 8
    assert run.config["model"]["decoder_embed_dim"] == preset("mega_lm_tiny")["decoder_embed_dim"]
    assert run.recipe.evaluate["contexts"][1] == {"segments": [2], "chunk_size": [16]}


def test_recipes_are_chosen_by_name_and_cell() -> None:
    """A recipe without the entry is not chosen; entries that are numbers are written as they are."""
    table, figure = find("mega/table2"), find("mega/figure4")
    chosen = choose(table, "name=mega_chunk")
    assert chosen == [recipe for recipe in table if recipe.name.endswith("/mega_chunk")] != []
    points = choose(choose(figure, "ema_dim=0,16"), "chunk=-1")
    assert {recipe.name.rpartition("/")[2] for recipe in points} == {"n0", "n16", "full"}
    assert choose([*table, *find("mega/table5")], "chunk=128") == choose(table, "chunk=128")


def test_settings_are_checked_before_anything_is_made(tmp_path: Path) -> None:
    """fairseq's parser knows the choices."""
    check_options(run_of(TEXT, tmp_path, "model.attention_activation_fn=laplace"))
    with pytest.raises(RecipeError, match="attention-activation-fn.*gelu"):
        check_options(run_of(TEXT, tmp_path, "model.attention_activation_fn=gelu"))


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ("mega/table2/text/transformer", "model.encoder_chunk_size=64"),
        ("mega/table2/text/mega", "transformer:optimization.lr=0.1"),
        ("mega/table2/text", "task.sc_scaling=once"),
        ("mega/table2/text", "evaluate.average=3"),
        ("mega/table2/text", "evaluate.kind=speed"),
    ],
)
def test_a_setting_of_no_recipe_is_refused(names: str, text: str) -> None:
    with pytest.raises(RecipeError, match=f"--set {text} changes none"):
        revise_all(find(names), [parse_setting(text)])
