"""The published batch on any number of GPUs; on numbers that do not divide it, on fewer of them."""

import copy
from typing import Any, Tuple

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.recipes.recipe import RecipeError
from fairseq_mega.lab.reproduce.batches import share_out

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


@pytest.mark.parametrize(
    ("group", "option", "value"),
    [("dataset", "batch_size", 0), ("dataset", "max_tokens", -1), ("optimization", "update_freq", [0])],
)
def test_batches_without_examples_are_refused(group: str, option: str, value: Any) -> None:
    config = copy.deepcopy(catalogue()[TASKS["text"]].config)
    config[group][option] = value
    with pytest.raises(RecipeError, match=rf"^{group}.{option} .*: give at least 1$"):
        share_out(config, 1)
