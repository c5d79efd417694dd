"""Jobs: the published batch on any number of GPUs, the schedule of a shorter training, settings, and names."""

from pathlib import Path
from typing import Any, Optional, Tuple

import pytest

from fairseq_mega.data.augmented_images import images_per_epoch
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.recipes.recipe import RecipeError, preset
from fairseq_mega.lab.reproduce.jobs import plan, share_out
from fairseq_mega.lab.reproduce.results import about
from fairseq_mega.lab.reproduce.settings import Choices, choose, parse_setting, revise, revise_all
from tests.support.jobs import FIGURE6, PANELS, TEXT, run_of

TASKS = {
    **{task: f"mega/table2/{task}/mega" for task in ("listops", "text", "retrieval", "image", "pathfinder", "pathx")},
    "speech": "mega/table4/speech/base",
}
EXAMPLES = {"listops": 64, "text": 50, "retrieval": 64, "image": 50, "pathfinder": 128, "pathx": 128, "speech": 20}
SHARED = {
    ("listops", 1): (64, 1, 1, False),
    ("text", 1): (25, 2, 1, False),
    ("retrieval", 1): (8, 8, 1, False),
    ("image", 1): (50, 1, 1, False),
    ("pathfinder", 1): (128, 1, 1, False),
    ("pathx", 8): (2, 8, 8, True),
    ("speech", 1): (20, 1, 1, False),
    ("pathx", 1): (16, 8, 1, False),  # 16 samples in the statistics there, too
    ("image", 2): (25, 1, 2, True),
    ("text", 5): (10, 1, 5, False),
    ("text", 4): (25, 1, 2, False),  # 50 examples are two times 25
    ("text", 8): (10, 1, 5, False),
}


def test_shares() -> None:
    for (task, gpus), batch in SHARED.items():
        assert share_out(catalogue()[TASKS[task]].config, gpus) == batch, (task, gpus)


@pytest.mark.parametrize("gpus", [0, 1, 3, 5, 8, 24])
def test_an_update_sees_the_published_batch(gpus: int) -> None:
    """Whatever --gpus is, no recipe of a table is refused, though eight GPUs do not divide 50 examples."""
    for task, name in TASKS.items():
        batch = share_out(catalogue()[name].config, gpus)
        assert batch.step is not None
        assert batch.step * batch.accumulated * batch.places == EXAMPLES[task] and batch.places <= max(1, gpus)
    for name, batches in (("mega/table5/wikitext103/mega", 24), ("mega/table5/enwik8/mega", 8)):
        batch = share_out(catalogue()[name].config, gpus)
        assert batch.step is None and batch.accumulated * batch.places == batches and batch.places <= max(1, gpus)
    translation = share_out(catalogue()["mega/table7/en-de/mega_softmax"].config, gpus)
    assert translation.accumulated * translation.places == 8


def test_a_cosine_ends_with_the_training(tmp_path: Path) -> None:
    schedule = run_of("mega/table2/text/s4d", tmp_path, max_update=1000).config["lr_scheduler"]
    assert (schedule["warmup_updates"], schedule["lr_period_updates"]) == (100, 900.0)


def test_published_settings_on_imagenet() -> None:
    """MEGA, Table 11, and the published recipe; 300 epochs of the images that 256 divides."""
    config = catalogue()["mega/table6/imagenet/mega"].config
    task = {key: config["task"][key] for key in ("repeated_augmentation", "mixup", "cutmix", "label_smoothing")}
    assert task == {"repeated_augmentation": 3, "mixup": 0.8, "cutmix": 1.0, "label_smoothing": 0.1}
    optimization, schedule = config["optimization"], config["lr_scheduler"]
    assert (optimization["lr"], optimization["clip_norm"], config["optimizer"]["weight_decay"]) == ([0.002], 1.0, 0.05)
    assert (schedule["warmup_epochs"], schedule["warmup_init_lr"], schedule["min_lr"]) == (20, 1e-5, 1e-6)
    batch = config["dataset"]["batch_size"] * config["distributed_training"]["distributed_world_size"]
    assert batch == 1024 and optimization["max_update"] == 300 * images_per_epoch(IMAGES["train"], 3) // batch
    assert optimization["max_update"] % schedule["period_epochs"] == 0 and config["model"]["drop_path"] == 0.3


@pytest.mark.parametrize("wanted, epochs", [(375_300, (300, 20)), (12_510, (10, 0)), (90_000, (72, 4)), (1, (1, 0))])
def test_epochs_of_a_shorter_training(tmp_path: Path, wanted: int, epochs: Tuple[int, int]) -> None:
    schedule = run_of("mega/table6/imagenet/mega", tmp_path, max_update=wanted).config["lr_scheduler"]
    assert (schedule["period_epochs"], schedule["warmup_epochs"]) == epochs


@pytest.mark.parametrize("updates", [1000, None])
def test_values_of_set_stay_in_a_shortened_schedule(updates: Optional[int], tmp_path: Path) -> None:
    warmup, total = "lr_scheduler.warmup_updates=700", "lr_scheduler.total_num_update=900"
    for texts, wanted in (((warmup, total), (700, 900.0)), ((warmup,), (700, float(updates or 25_000)))):
        found = run_of(TEXT, tmp_path, *texts, max_update=updates).config["lr_scheduler"]
        assert (found["warmup_updates"], found["total_num_update"]) == wanted
    schedule = run_of("mega/table2/text/s4d", tmp_path, warmup, max_update=1000).config["lr_scheduler"]
    assert (schedule["warmup_updates"], schedule["lr_period_updates"]) == (700, 300.0)


def test_every_tiny_form_can_be_shorter() -> None:
    for name, recipe in catalogue().items():
        for updates in (1, 3, 5):
            schedule = plan(recipe, 1, Path(), "", Choices(Path(), smoke=True, max_update=updates)).config[
                "lr_scheduler"
            ]
            assert schedule.get("warmup_updates", 0) < (schedule.get("total_num_update") or updates), name


def test_the_tiny_form_keeps_what_is_set(tmp_path: Path) -> None:
    texts = ["model.decoder_chunk_size=8", "optimization.max_update=3", f"evaluate.contexts={PANELS}"]
    run = run_of(FIGURE6, tmp_path, *texts, smoke=True)
    assert run.config["model"]["decoder_chunk_size"] == 8 and run.updates == 3
    assert run.config["model"]["decoder_embed_dim"] == preset("mega_lm_tiny")["decoder_embed_dim"]
    assert run.recipe.evaluate["contexts"][1] == {"segments": [2], "chunk_size": [16]}


def test_other_settings_are_another_folder(tmp_path: Path) -> None:
    """Seed, learning rate, batch norm's examples, options and data distinguish runs; the number of GPUs does not."""

    def folder(*texts: str, **chosen: Any) -> Path:
        return run_of("mega/table2/image/mega", tmp_path, *texts, **chosen).folder

    assert folder() == folder(gpus=1) == folder(gpus=2, workers=3)
    others = [folder(seed=2), folder(digest="1"), folder("optimization.lr=0.1"), folder(max_update=900)]
    others += [folder("dataset.batch_size=25", "optimization.update_freq=2"), folder(precision="bf16")]
    others += [folder(extra=("--sentence-avg",)), folder(smoke=True)]
    assert len({folder(), *others}) == 1 + len(others)
    assert folder().name.startswith("image.mega.laplace.n16.full.seed1.")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("optimization.lr=1e-3", [0.001]),
        ("optimization.lr=[0.1, 1e-2]", [0.1, 0.01]),
        ("optimization.max_update=30", 30),
        ("lr_scheduler.total_num_update=30", 30.0),
        ("optimizer.adam_betas=(0.9, 0.999)", "(0.9, 0.999)"),
        ("checkpoint.no_epoch_checkpoints=false", False),
        ("evaluate.early_epoch=2", 2),
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
    assert chunk.conditions == plain.conditions != rate.conditions
    assert about(rate)["set"] == {"optimization.lr": "0.1"} and "set" not in about(plain)
    assert [about(run_of(TEXT, tmp_path, precision=name))["precision"] for name in ("fp32", "bf16")] == ["fp32", "bf16"]


def test_a_setting_of_other_recipes_changes_no_conditions(tmp_path: Path) -> None:
    choices = Choices(tmp_path, settings=(parse_setting("model.encoder_chunk_size=8"),))
    mega, s4d = catalogue()[TEXT], catalogue()["mega/table2/text/s4d"]
    assert choices.conditions(s4d) == Choices(tmp_path).conditions(s4d)
    assert choices.settings_of(mega) == {"model.encoder_chunk_size": "8"} and not choices.settings_of(s4d)
    found = revise_all([mega, s4d], choices.settings)
    assert found[0].config["model"]["encoder_chunk_size"] == 8 and found[1] == s4d


@pytest.mark.parametrize(
    "text", ["task.sc_scaling=once", "mega:optimization.lr=1", "evaluate.average=3", "evaluate.kind=speed"]
)
def test_a_setting_of_no_recipe_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match=f"--set '?{text}"):
        revise_all(find("mega/table2/text"), [parse_setting(text)])


def test_recipes_are_chosen_by_name_and_cell() -> None:
    """A recipe without the entry is not chosen; entries that are numbers are written as they are."""
    table, figure = find("mega/table2"), find("mega/figure4")
    chosen = choose(table, "name=mega_chunk")
    assert chosen == [recipe for recipe in table if recipe.name.endswith("/mega_chunk")] != []
    points = choose(choose(figure, "ema_dim=0,16"), "chunk=-1")
    assert {recipe.name.rpartition("/")[2] for recipe in points} == {"n0", "n16", "full"}
    assert choose([*table, *find("mega/table5")], "chunk=128") == choose(table, "chunk=128")
    with pytest.raises(RecipeError, match="--where name=none"):
        choose(table, "name=none")
