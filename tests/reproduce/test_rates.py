"""The choice of a learning rate by short trainings."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Dict

import pytest

from fairseq_mega.lab.recipes.catalogue import catalogue
from fairseq_mega.lab.reproduce.rates import chosen, searches
from fairseq_mega.lab.reproduce.settings import Choices
from fairseq_mega.lab.runs.stages import marker_of

RECIPE = catalogue()["comparison/text_budget/mega_chunk"]


def test_short_trainings_have_a_shortened_schedule(tmp_path: Path) -> None:
    short = searches(RECIPE, tmp_path, "data", Choices(tmp_path))
    assert [job.rate for job in short] == RECIPE.rates
    assert {(job.seed, job.updates) for job in short} == {(1, 400)}
    assert {job.config["lr_scheduler"]["warmup_updates"] for job in short} == {160}
    assert {job.updates for job in searches(RECIPE, tmp_path, "data", Choices(tmp_path, max_update=500))} == {100}
    assert not searches(replace(RECIPE, rates=[0.1]), tmp_path, "data", Choices(tmp_path))
    assert not searches(catalogue()["miniature/text/mega"], tmp_path, "data", Choices(tmp_path))


@pytest.mark.parametrize(
    ("accuracies", "rate"),
    [
        ({0.004: 60.0, 0.002: 70.0, 0.001: 65.0}, 0.002),
        ({0.004: 60.0, 0.002: 70.0, 0.001: 70.0}, 0.002),  # of equally good ones the first
        ({0.004: 60.0, 0.002: 70.0}, 0.004),  # one has not ended
    ],
)
def test_the_best_validation_chooses(accuracies: Dict[float, float], rate: float, tmp_path: Path) -> None:
    short = searches(RECIPE, tmp_path, "data", Choices(tmp_path))
    for job in short:
        job.folder.mkdir(parents=True)
        valid = {
            "epoch": 1,
            "valid_loss": "1",
            "valid_num_updates": "400",
            "valid_accuracy": accuracies.get(job.rate, 99),
        }
        log = f"| INFO | num. shared model params: 7\n| train: 9 examples\n| valid | {json.dumps(valid)}\n"
        (job.folder / "train.log").write_text(log)
        if job.rate in accuracies:
            marker_of(job.folder, "train").parent.mkdir()
            marker_of(job.folder, "train").write_text("")
    (recipe,) = chosen(RECIPE, short)
    assert recipe.config["optimization"]["lr"] == [rate] and recipe.cell["lr"] == rate
