"""Recipes on ImageNet: published settings, shorter trainings, batches, and the images as data."""

import os
from pathlib import Path
from typing import Tuple

import pytest

from fairseq_mega.data.augmented_images import images_per_epoch
from fairseq_mega.lab.prepare.classification.imagenet import IMAGES
from fairseq_mega.lab.recipes.catalogue import catalogue, find
from fairseq_mega.lab.reproduce import runner
from fairseq_mega.lab.reproduce.jobs import plan
from fairseq_mega.lab.reproduce.settings import Choices
from tests.support import tiny_images


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
    (recipe,) = find("mega/table6/imagenet/mega")
    schedule = plan(recipe, 1, tmp_path, "", Choices(tmp_path, max_update=wanted)).config["lr_scheduler"]
    assert (schedule["period_epochs"], schedule["warmup_epochs"]) == epochs


@tiny_images.needs_timm
def test_nothing_is_written_beside_the_images_of_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A shared folder may be read alone; otherwise a lock lies beside the data while they are made."""
    images = tiny_images.write_files(tmp_path / "shared" / "imagenet", {"train": 6, "val": 3})
    with monkeypatch.context() as patched:
        patched.setattr(os, "access", lambda path, mode: path != tmp_path / "shared")
        digest = runner.prepare(catalogue()["mega/table6/imagenet/mega"], images, Choices(tmp_path / "out"))
    assert [path.name for path in (tmp_path / "shared").iterdir()] == ["imagenet"]
    assert "has 6 images of 3 classes, ImageNet has 1,281,167" in capsys.readouterr().err
    assert runner.prepare(catalogue()["mega/table6/imagenet/mega"], images, Choices(tmp_path / "out")) == digest
    assert (tmp_path / "shared" / ".imagenet.lock").exists()
