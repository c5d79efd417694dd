"""Colour images: arrays and folders, what they look like to a model, augmentation, and fairseq's commands."""

import json
import re
import shutil

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from PIL import Image

from fairseq_mega.compat.files import card
from fairseq_mega.data.augmented_images import evaluation_transform
from fairseq_mega.data.image_folder import read_image
from fairseq_mega.lab.evaluate.new_examples import PictureReader
from fairseq_mega.tasks.image_classification import ImageClassificationConfig, ImageClassificationTask
from tests.support import tiny_images
from tests.support.helpers import forget_earlier_runs, run_fairseq

MODEL = ["--arch", "mega_image_miniature", "--image-size", 8, "--patch-size", 4, "--image-class-num", 3]
TRAINING = ["--task", "image-classification", *MODEL, "--criterion", "lra_cross_entropy"]
TRAINING += ["--optimizer", "adam_selective_decay", "--weight-decay", 0.5]
TRAINING += ["--lr", 0.003, "--batch-size", 8, "--no-progress-bar", "--log-format", "json", "--log-interval", 1]
AUGMENTED = ["--augmentation", "randaugment", "--repeated-augmentation", 3]
AUGMENTED += ["--mixup", 0.8, "--cutmix", 1.0, "--label-smoothing", 0.1]
FOR_TRAINING = {"data_selector": None}  # as fairseq-train loads --train-subset


@pytest.fixture(scope="module")
def arrays(tmp_path_factory):
    return tiny_images.write(tmp_path_factory.mktemp("arrays"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_images.write_files(tmp_path_factory.mktemp("files"))


def task_of(folder, size=8, classes=3, **options):
    """The task, which knows the size and the classes of a model."""
    cfg = OmegaConf.structured(ImageClassificationConfig)
    OmegaConf.set_struct(cfg, False)
    values = {"seed": 1, "data": str(folder), "_name": "image-classification", **options}
    task = ImageClassificationTask.setup_task(OmegaConf.merge(cfg, values))
    task.image_size, task.classes = size, classes
    return task


def logged(output, key):
    """Values of a key in the lines of --log-format json."""
    lines = re.findall(r"\{.*\}", output)
    return [entry[key] for entry in map(json.loads, (line for line in lines if line.startswith('{"'))) if key in entry]


def test_images_are_normalised_and_their_channels_first(arrays):
    dataset = task_of(arrays).load_dataset("test")
    stored = np.load(arrays / "input" / "test.npy").astype(np.float64)[[4, 2]]
    batch = dataset.collater([dataset[4], dataset[2]])
    want = (stored / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    images = batch["net_input"]["images"]
    torch.testing.assert_close(images.double(), torch.from_numpy(want).permute(0, 3, 1, 2), atol=1e-5, rtol=0)
    labels = (arrays / "label" / "test.label").read_text().split()
    assert batch["target"].tolist() == [int(labels[4]), int(labels[2])]
    assert len(dataset) == 9 and batch["ntokens"] == 2 * 64


def test_what_does_not_fit(arrays, folder, tmp_path):
    """Another size, and classes other than the training's."""
    with pytest.raises(ValueError, match="--image-size 12"):
        task_of(arrays, size=12).load_dataset("test")
    data = shutil.copytree(folder, tmp_path / "data")
    shutil.rmtree(data / "valid" / "class1")
    with pytest.raises(ValueError, match="class1"):
        task_of(data).load_dataset("valid")


@tiny_images.needs_timm
def test_only_training_images_are_augmented(folder, tmp_path):
    """Scored images are never augmented, also those of the training part; valid may be called val."""
    data = shutil.copytree(folder, tmp_path / "data")
    (data / "valid").rename(data / "val")
    task = task_of(data, mixup=0.8, repeated_augmentation=3)
    assert len(task.load_dataset("valid")) == 7
    for dataset in (task.load_dataset("valid"), task.load_dataset("train")):
        batch = dataset.collater([dataset[0], dataset[1]])
        assert batch["net_input"]["images"].shape == (2, 3, 8, 8) and batch["target"].dtype == torch.long
    batch = task.load_dataset("train", **FOR_TRAINING).collater([task.datasets["train"][0]])
    assert batch["target"].shape == (1, 3) and batch["target"].is_floating_point()


@tiny_images.needs_timm
def test_arrays_are_augmented_too(arrays):
    drawn = task_of(arrays, augmentation="randaugment").load_dataset("train", **FOR_TRAINING)
    assert drawn[0]["source"].shape == (3, 8, 8)


@tiny_images.needs_timm
@pytest.mark.parametrize("road", ["folder", "training folder"])
def test_a_picture_is_seen_as_the_array_of_it(road, arrays, tmp_path):
    """A model trained on arrays reads a picture whole, as the arrays are, in a folder of its own or beside them."""
    data = shutil.copytree(arrays, tmp_path / "data")
    dataset = task_of(data).load_dataset("train")
    expected = dataset.collater([dataset[0]])["net_input"]["images"]
    others = data if road == "training folder" else tmp_path / "others"
    for number in range(3):
        folder = others / "test" / f"class{number}"
        folder.mkdir(parents=True)
        Image.fromarray(np.load(data / "input" / "train.npy")[0]).save(folder / "one.png")
    (data / "input" / "test.npy").unlink()
    task = task_of(others)
    if road == "folder":
        card.check("a.pt", task_of(data).data_card(), task, {})
    dataset = task.load_dataset("test")
    torch.testing.assert_close(dataset.collater([dataset[1]])["net_input"]["images"], expected)


@tiny_images.needs_timm
@pytest.mark.parametrize("trained_on", ["arrays", "folders", "unknown"])
@pytest.mark.parametrize("size", [(8, 8), (12, 17)])
def test_a_picture_is_seen_as_in_training(trained_on, size, arrays, folder, tmp_path):
    """Its centre after a resize where training saw that, whatever data it is classified beside."""
    path = tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(2).integers(256, size=(*size, 3)).astype(np.uint8)).save(path)
    task = task_of(folder if trained_on == "arrays" else arrays)
    trained = {"arrays": task_of(arrays).data_card(), "folders": task_of(folder).data_card(), "unknown": {}}
    framing = {entry: text for entry, text in trained[trained_on].items() if entry != card.LABELS}
    card.check("a.pt", framing, task, {})
    seen = PictureReader(task).read_file(path)[1]["images"][0]
    kept = 0.875 if trained_on == "folders" else 1.0  # of an old checkpoint the data tell
    torch.testing.assert_close(seen, evaluation_transform(8, kept)(read_image(path)))


@tiny_images.needs_timm
def test_batches_of_an_update_do_not_depend_on_processes(tmp_path):
    """Six processes, or two that take three batches each for an update: the same batches, none with an image twice."""
    data = tiny_images.write_files(tmp_path, {"train": 36, "valid": 3})

    def batches(processes, accumulated):
        task = task_of(data, repeated_augmentation=3, update_freq=[1, accumulated])  # of the first epoch, and later
        dataset = task.load_dataset("train", **FOR_TRAINING)
        iterator = task.get_batch_iterator(dataset=dataset, max_sentences=2, num_shards=processes, epoch=2)
        found = [batch.tolist() for batch in iterator.frozen_batches]
        assert all(len({dataset.image_at(place)[0] for place in batch}) == len(batch) for batch in found)
        return found

    assert batches(6, 1) == batches(2, 3) == batches(1, 6)


@tiny_images.needs_timm
def test_training_and_its_resumption(folder, tmp_path, device_flags):
    """Two epochs at once, and the same with workers after a stop in the first: the same losses."""
    arguments = [folder, *TRAINING, *AUGMENTED, "--max-epoch", 2, *device_flags]
    whole = run_fairseq("train", [*arguments, "--num-workers", 0, "--save-dir", tmp_path / "whole"])
    forget_earlier_runs()
    rest = [*arguments, "--save-dir", tmp_path / "parts"]
    run_fairseq("train", [*rest, "--num-workers", 0, "--max-update", 2, "--save-interval-updates", 2])
    forget_earlier_runs()
    resumed = run_fairseq("train", [*rest, "--num-workers", 1])
    want, got = (logged(output, "train_loss") for output in (whole, resumed))
    assert len(want) == 2 and want == got
    assert logged(whole, "valid_accuracy") == logged(resumed, "valid_accuracy")[-2:]
    ends = [torch.load(tmp_path / run / "checkpoint_last.pt", weights_only=True) for run in ("whole", "parts")]
    for name, weight in ends[0]["model"].items():
        assert torch.equal(weight, ends[1]["model"][name]), name
    assert [group["weight_decay"] for group in ends[0]["last_optimizer_state"]["param_groups"]] == [0.5, 0.0]
