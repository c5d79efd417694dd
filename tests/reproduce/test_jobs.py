"""Jobs: the published batch on any number of GPUs, and the schedule of a shorter training."""

from pathlib import Path
from typing import Any, Optional, Tuple

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.jobs import plan, share_out
from fairseq_mega.lab.reproduce.settings import Choices, parse_setting, revise_all

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


@pytest.mark.parametrize("case", SHARED)
def test_shares(case: Tuple[str, int]) -> None:
    task, gpus = case
    assert share_out(catalogue()[TASKS[task]].config, gpus) == SHARED[case]


@pytest.mark.parametrize("gpus", [0, 1, 2, 3, 4, 5, 7, 8, 24])
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


def test_per_step() -> None:
    config = catalogue()[TASKS["text"]].config
    assert share_out(config, 1, 5) == (5, 10, 1, False)
    with pytest.raises(RecipeError, match="--per-step is 4"):
        share_out(config, 1, 4)


def test_a_cosine_ends_with_the_training(tmp_path: Path) -> None:
    recipe = catalogue()["mega/table2/text/s4d"]
    schedule = plan(recipe, 1, Path("data"), "0", Choices(tmp_path, max_update=1000)).config["lr_scheduler"]
    assert (schedule["warmup_updates"], schedule["lr_period_updates"]) == (100, 900.0)


def test_a_smoke_run_is_not_longer_than_set(tmp_path: Path) -> None:
    settings = (parse_setting("optimization.max_update=3"),)
    (changed,) = revise_all([catalogue()["mega/table2/text/mega"]], settings)
    planned = plan(changed, 1, Path("data"), "0", Choices(tmp_path, smoke=True, settings=settings))
    assert planned.config["optimization"]["max_update"] == 3


@pytest.mark.parametrize("updates", [1000, None])
def test_values_of_set_stay_in_a_shortened_schedule(updates: Optional[int], tmp_path: Path) -> None:
    texts = ("lr_scheduler.warmup_updates=700", "lr_scheduler.total_num_update=900")
    settings = tuple(map(parse_setting, texts))
    for given, wanted in ((settings, (700, 900.0)), (settings[:1], (700, float(updates or 25_000)))):
        (changed,) = revise_all([catalogue()["mega/table2/text/mega"]], given)
        choices = Choices(tmp_path, max_update=updates, settings=given)
        found = plan(changed, 1, Path("data"), "0", choices).config["lr_scheduler"]
        assert (found["warmup_updates"], found["total_num_update"]) == wanted
    (cosine,) = revise_all([catalogue()["mega/table2/text/s4d"]], settings[:1])
    choices = Choices(tmp_path, max_update=1000, settings=settings[:1])
    schedule = plan(cosine, 1, Path("data"), "0", choices).config["lr_scheduler"]
    assert (schedule["warmup_updates"], schedule["lr_period_updates"]) == (700, 300.0)


@pytest.mark.parametrize("updates", [1, 3, 5])
def test_every_tiny_form_can_be_shorter(updates: int) -> None:
    choices = Choices(Path(), smoke=True, max_update=updates)
    for name, recipe in catalogue().items():
        schedule = plan(recipe, 1, Path(), "", choices).config["lr_scheduler"]
        total = schedule.get("total_num_update") or updates
        assert schedule.get("warmup_updates", 0) < total, name


def test_other_settings_are_another_folder(tmp_path: Path) -> None:
    """Seed, learning rate, batch norm's examples, options and data distinguish runs; the number of GPUs does not."""
    name = "mega/table2/image/mega"

    def folder(*texts: str, seed: int = 1, data: str = "0", **chosen: Any) -> Path:
        settings = tuple(map(parse_setting, texts))
        (recipe,) = revise_all([catalogue()[name]], settings)
        return plan(recipe, seed, Path("data"), data, Choices(tmp_path, settings=settings, **chosen)).folder

    assert folder() == folder(gpus=1) == folder(gpus=2, workers=3) == folder(per_step=50)
    others = [folder(seed=2), folder(data="1"), folder("optimization.lr=0.1"), folder(max_update=900)]
    others += [folder(per_step=25), folder(precision="bf16"), folder(extra=("--sentence-avg",)), folder(smoke=True)]
    assert len({folder(), *others}) == 1 + len(others)
    assert folder().name.startswith("image.mega.laplace.n16.full.seed1.")
