"""Other values of recipes: where they stand, which results they tell apart, and that a tiny form keeps them."""

from dataclasses import replace
from pathlib import Path
from typing import Any, List, Optional

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.recipes.recipe import RecipeError, preset
from fairseq_mega.lab.report.alike import check_alike
from fairseq_mega.lab.reproduce.choices import Choices
from fairseq_mega.lab.reproduce.command import main
from fairseq_mega.lab.reproduce.evaluating import generated, results_of
from fairseq_mega.lab.reproduce.recording import about, table_folder
from fairseq_mega.lab.reproduce.revising import (
    at_each_rate,
    check_by_fairseq,
    choose,
    parse_setting,
    revise,
    revise_all,
)
from fairseq_mega.lab.reproduce.runs import Run, plan
from fairseq_mega.lab.runs.results import ResultError, make_result, read_result, write_result

TEXT, FIGURE6 = "mega/table2/text/mega", "mega/figure6/wikitext103/mega"
TRANSLATION = "mega/table7/en-de/transformer"
PANELS = "[{segments: [4], chunk_size: [16]}, {segments: [2], chunk_size: [16]}]"


def run_of(name: str, folder: Path, *texts: str, **chosen: Any) -> Run:
    settings = tuple(map(parse_setting, texts))
    return plan(revise(catalogue()[name], settings), 1, Path("data"), "0", Choices(folder, settings=settings, **chosen))


def write_result_of(run: Run, choices: Choices) -> None:
    """Write a result as the runner records it."""
    result = make_result("lra", run.name, {"test_accuracy": 1.0}, 1, "command", run.seed, about(run, choices))
    write_result(choices.out / "results" / f"{run.recipe.report}.{run.name}.json", result)


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


@pytest.mark.parametrize("text", ["model.encoder_layers=2.5", "checkpoint.no_epoch_checkpoints=1", "optimization.lr=x"])
def test_a_value_of_another_type_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=f"--set {text}: {TEXT} has "):
        revise(catalogue()[TEXT], [parse_setting(text)])


def test_a_cell_tells_its_settings(tmp_path: Path) -> None:
    """Another chunk is another point of the same table or figure; another rate is not."""
    plain, chunk = run_of(TEXT, tmp_path), run_of(TEXT, tmp_path, "model.encoder_chunk_size=64")
    rate = run_of(TEXT, tmp_path, "optimization.lr=0.1")
    assert chunk.recipe.cell == {**plain.recipe.cell, "chunk": 64} and ".c64." in chunk.name
    assert rate.recipe.cell == plain.recipe.cell and len({run.name for run in (plain, chunk, rate)}) == 3
    told = Choices(tmp_path, settings=(parse_setting("model.encoder_chunk_size=64"),))
    untold = Choices(tmp_path, settings=(parse_setting("optimization.lr=0.1"),))
    base = Choices(tmp_path).conditions(plain.recipe)
    assert told.conditions(chunk.recipe) == base != untold.conditions(rate.recipe)
    assert about(rate, untold)["set"] == {"optimization.lr": "0.1"} and "set" not in about(plain, Choices(tmp_path))


def test_a_setting_of_other_recipes_changes_no_conditions(tmp_path: Path) -> None:
    choices = Choices(tmp_path, settings=(parse_setting("transformer:optimization.lr=0.1"),))
    mega, transformer = catalogue()[TEXT], catalogue()["mega/table2/text/transformer"]
    assert choices.conditions(mega) == Choices(tmp_path).conditions(mega)
    assert choices.conditions(transformer)["overrides"] == {"optimization.lr": "0.1"}
    found = revise_all([mega, transformer], choices.settings)
    assert [recipe.config["optimization"]["lr"] for recipe in found] == [[0.004], [0.1]]


def test_a_table_mixes_no_settings_of_one_cell(tmp_path: Path) -> None:
    """A setting of one recipe parts it from another recipe of the same cell, which Table 3 has."""
    plain, settings = Choices(tmp_path), (parse_setting("mega:optimization.lr=0.1"),)
    changed, twin = replace(plain, settings=settings), run_of("mega/table3/text/softmax", tmp_path)
    own = run_of(TEXT, tmp_path, "mega:optimization.lr=0.1")
    assert own.recipe.cell == twin.recipe.cell
    for run, choices in ((twin, plain), (own, changed)):
        write_result_of(run, choices)
    assert [path.stem for path in table_folder([own], changed).iterdir()] == [own.name]
    assert [path.stem for path in table_folder([twin], plain).iterdir()] == [twin.name]


def test_a_table_mixes_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nor two runs of one seed; results of other seeds and recipes on the same data, or on other places, are kept."""
    choices, other = Choices(tmp_path), Choices(tmp_path, extra=("--validate-interval", "2"))
    listops = "mega/table2/listops/mega"

    def write(name: str, seed: int, data: str, made: Choices = choices) -> Run:
        run = plan(catalogue()[name], seed, Path("data"), data, made)
        result = make_result("lra", run.name, {"test_accuracy": 1.0}, 1, "command", 1, about(run, made))
        path = tmp_path / "results" / f"{run.recipe.report}.{run.name}.json"
        write_result(path, {**result, "seed": seed, "date": f"2026-01-{len(list(tmp_path.glob('results/*'))) + 1:02d}"})
        return run

    one = write(TEXT, 1, "new")
    kept = [one, write(TEXT, 2, "new"), write("mega/table2/text/transformer", 1, "new")]
    left = [write(TEXT, 1, "old"), write(TEXT, 3, "old"), write(TEXT, 1, "new", other), write(listops, 1, "old")]
    kept.append(write(listops, 1, "new"))
    found = {path.stem for path in table_folder([one], choices).iterdir()}
    assert found == {run.name for run in kept}
    told = capsys.readouterr().err
    assert all(run.name in told for run in left) and not any(run.name in told for run in kept)
    with pytest.raises(ResultError, match="data_digest: old and new|data_digest: new and old"):
        check_alike({path: read_result(path) for path in (tmp_path / "results").iterdir()})


def test_a_table_mixes_no_recipe_of_a_file_with_one_of_the_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The recipe in a file inherits the cell, and changes what neither the cell nor the conditions contain."""
    file = tmp_path / "own.yaml"
    inherited = f"# @package _global_\ndefaults:\n  - /{TEXT}@_global_\n  - _self_\n"
    file.write_text(f"{inherited}recipe: {{number: mine}}\nmodel: {{dropout: 0.3}}\n")
    choices, recipes = Choices(tmp_path), [catalogue()[TEXT], *find(str(file))]
    runs = [plan(recipe, seed, Path("data"), "0", choices) for recipe in recipes for seed in (1, 2)]
    for run in runs:
        write_result_of(run, choices)
    for mine in (runs[:2], runs[2:]):
        assert {path.stem for path in table_folder(mine, choices).iterdir()} == {run.name for run in mine}
    file.write_text(file.read_text().replace("0.3", "0.6"))
    edited = plan(find(str(file))[0], 1, Path("data"), "0", choices)
    write_result_of(edited, choices)
    assert {path.stem for path in table_folder([edited], choices).iterdir()} == {edited.name}
    assert runs[2].name in capsys.readouterr().err
    assert main([TEXT, str(file), "--out", str(tmp_path), "--list"]) == 1
    assert f"own.yaml and {TEXT}: 'cell'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after"), [("optimization: {lr: [0.001]}", "optimization: {lr: [0.002]}"), ("beam: 5", "beam: 2")]
)
def test_a_table_mixes_no_recipe_of_a_file_before_and_after_a_change(before: str, after: str, tmp_path: Path) -> None:
    """Change its rate or its evaluation between two commands with other seeds."""
    file, choices, found = tmp_path / "own.yaml", Choices(tmp_path), []
    parent = TEXT if "lr" in before else TRANSLATION
    inherited = f"# @package _global_\ndefaults:\n  - /{parent}@_global_\n  - _self_\n"
    for seed, changed in ((1, before), (2, after)):
        entry = changed if "lr" in changed else f"recipe: {{evaluate: {{{changed}}}}}"
        file.write_text(f"{inherited}{entry}\n")
        run = plan(find(str(file))[0], seed, Path("data"), "0", choices)
        write_result_of(run, choices)
        found.append(run)
    assert found[0].evaluation != found[1].evaluation or "lr" in before
    assert {path.stem for path in table_folder(found[1:], choices).iterdir()} == {found[1].name}


def test_a_table_keeps_every_rate_of_a_recipe_with_several(tmp_path: Path) -> None:
    """Keep those of the command's recipes and those of the commands before it."""
    choices, found = Choices(tmp_path), {}
    for name in ("comparison/bytes/mega", "comparison/bytes/transformer"):
        found[name] = [plan(recipe, 1, Path("data"), "0", choices) for recipe in at_each_rate(catalogue()[name])]
        for run in found[name]:
            write_result_of(run, choices)
    names = {run.name for runs in found.values() for run in runs}
    assert len(names) == 4
    for runs in (*found.values(), found["comparison/bytes/mega"][:1]):
        assert {path.stem for path in table_folder(runs, choices).iterdir()} == names


def test_other_evaluations_are_kept_apart(tmp_path: Path) -> None:
    """Two evaluations of one training have results of their own, and the second is not taken for done."""
    plain, other = run_of(FIGURE6, tmp_path), run_of(FIGURE6, tmp_path, f"evaluate.contexts={PANELS}")
    assert plain.folder == other.folder and results_of(plain) != results_of(other)
    assert all(run.evaluation.startswith("figure6-") for run in (plain, other))
    average = run_of(TRANSLATION, tmp_path, "evaluate.average=3")
    assert average.config["checkpoint"]["keep_last_epochs"] == 3
    five, two = run_of(TRANSLATION, tmp_path), run_of(TRANSLATION, tmp_path, "evaluate.beam=2")
    assert five.folder == two.folder and generated(five, "best") != generated(two, "best")


def test_the_tiny_form_keeps_what_is_given(tmp_path: Path) -> None:
    texts = ["model.decoder_chunk_size=8", f"evaluate.contexts={PANELS}"]
    run = run_of(FIGURE6, tmp_path, *texts, smoke=True)
    assert run.config["model"]["decoder_chunk_size"] == 8
    assert run.config["model"]["decoder_embed_dim"] == preset("mega_lm_tiny")["decoder_embed_dim"]
    assert run.recipe.evaluate["contexts"][1] == {"segments": [2], "chunk_size": [16]}


def test_rates_are_tried_one_by_one() -> None:
    recipe = revise(catalogue()["miniature/text/mega"], [parse_setting("optimization.lr=[0.1, 0.2, 0.3]")])
    assert [one.config["optimization"]["lr"] for one in at_each_rate(recipe)] == [[0.1], [0.2], [0.3]]
    assert [one.cell["lr"] for one in at_each_rate(recipe)] == [0.1, 0.2, 0.3]


def test_recipes_are_chosen_by_name_and_cell() -> None:
    """A recipe without the entry is not chosen; entries that are numbers are written as they are."""
    table, figure = find("mega/table2"), find("mega/figure4")
    chosen = choose(table, "name=mega_chunk")
    assert chosen == [recipe for recipe in table if recipe.name.endswith("/mega_chunk")] != []
    points = choose(choose(figure, "ema_dim=0,16"), "chunk=-1")
    assert {recipe.name.rpartition("/")[2] for recipe in points} == {"n0", "n16", "full"}
    assert choose([*table, *find("mega/table5")], "chunk=128") == choose(table, "chunk=128")


@pytest.mark.parametrize(
    ("setting", "found"),
    [
        ("model.attention_activation_fn=laplace", None),
        ("model.attention_activation_fn=gelu", "gelu"),  # fairseq's parser knows the choices
        ("model.dropout=2", "--dropout 2.0"),  # the model its ranges
        ("lr_scheduler.warmup_updates=999999", "--warmup-updates 999999"),  # the schedule what goes together
    ],
)
def test_settings_are_checked_before_anything_is_made(setting: str, found: Optional[str]) -> None:
    recipe = revise(catalogue()[TEXT], [parse_setting(setting)])
    if found is None:
        check_by_fairseq(recipe)
        return
    with pytest.raises(RecipeError, match=f"{TEXT}.* --set .*{found}"):
        check_by_fairseq(recipe)


def test_what_fairseq_asserts_is_told_in_one_line() -> None:
    name = "mega/table5/wikitext103/transformer"
    recipe = revise(catalogue()[name], [parse_setting("model.adaptive_softmax_cutoff=5,10")])
    with pytest.raises(RecipeError, match=f"{name}.* 5,10 != 20000,60000"):
        check_by_fairseq(recipe)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([TRANSLATION, "--per-step", "2"], "--per-step counts examples, and the recipes that are chosen count tokens"),
        ([FIGURE6, "--per-step", "2"], "--per-step counts examples"),
        ([TEXT, "--output", "x.png"], "--output is the image file of a figure"),
        ([TEXT, "--slurm", "timeout_min=3"], "--slurm timeout_min=3 is for --launcher slurm"),
        ([TEXT, "--slurm", "timeout_min=3", "--launcher", "print"], "is for --launcher slurm"),
        ([TEXT, "--data", "a", "--data-dir", "b"], "--data and --data-dir both name"),
        ([TEXT, "--gpus", "0", "--gpus-per-run", "2"], "--gpus-per-run is for GPUs"),
        (
            [TEXT, "--max-update", "3", "--set", "optimization.max_update=5"],
            "optimization.max_update=5 and --max-update both set the updates",
        ),
    ],
)
def test_options_without_effect_are_refused(
    words: List[str], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--smoke", "--out", str(tmp_path / "out")]) == 1
    assert told in capsys.readouterr().err and not (tmp_path / "out").exists()
