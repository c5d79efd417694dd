"""Colour images: the layout of the data, what does not fit, and fairseq's commands on a tiny model."""

import pickle
import re
import shutil

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from fairseq_mega.cli import console
from fairseq_mega.convert import command as convert_checkpoint
from fairseq_mega.tasks.image_classification import ImageClassificationConfig, ImageClassificationTask
from tests.support import tiny_images
from tests.support.helpers import forget_earlier_runs, run_fairseq

MODEL = ["--arch", "mega_image_miniature", "--image-size", 8, "--patch-size", 4, "--image-class-num", 3]
TRAINING = ["--criterion", "lra_cross_entropy", "--optimizer", "adam", "--lr", 0.003, "--batch-size", 8]
TRAINING += ["--max-epoch", 6, "--no-epoch-checkpoints", "--num-workers", 0, "--no-progress-bar"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_images.write(tmp_path_factory.mktemp("images"))


def task_of(folder, **known):
    cfg = OmegaConf.structured(ImageClassificationConfig)
    OmegaConf.set_struct(cfg, False)
    values = {"seed": 1, "max_valid_steps": None, "data": str(folder), "_name": "image-classification"}
    task = ImageClassificationTask.setup_task(OmegaConf.merge(cfg, values))
    for name, value in known.items():
        setattr(task, name, value)
    return task


def test_images_are_normalised_and_their_channels_first(folder):
    dataset = task_of(folder).load_dataset("test")
    stored = np.load(folder / "input" / "test.npy").astype(np.float64)[[4, 2]]
    batch = pickle.loads(pickle.dumps(dataset)).collater([dataset[4], dataset[2]])
    want = (stored / 255 - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]
    images = batch["net_input"]["images"]
    torch.testing.assert_close(images.double(), torch.from_numpy(want).permute(0, 3, 1, 2), atol=1e-5, rtol=0)
    labels = (folder / "label" / "test.label").read_text().split()
    assert batch["target"].tolist() == [int(labels[4]), int(labels[2])]
    assert len(dataset) == 9 and batch["ntokens"] == 2 * 64


def test_commands(folder, tmp_path, device_flags, capsys):
    arguments = [folder, "--task", "image-classification", *MODEL, *TRAINING, "--save-dir", tmp_path, *device_flags]
    run_fairseq("train", arguments)
    checkpoint = tmp_path / "checkpoint_best.pt"
    assert torch.load(checkpoint)["card"] == {"framing": "1"}
    forget_earlier_runs()
    given = [folder, "--path", checkpoint, "--valid-subset", "test", "--batch-size", 4, *device_flags]
    capsys.readouterr()
    assert console.run("validate", [str(argument) for argument in given]) == 0
    captured = capsys.readouterr()
    ((right, count),) = re.findall(r"correct (\d+) of (\d+)", captured.out + captured.err)
    assert int(count) == 9 and int(right) >= 7
    official = ["--input", checkpoint, "--output", tmp_path / "official.pth", "--to", "official", "--verify"]
    assert convert_checkpoint.main([str(argument) for argument in official]) == 0
    args = torch.load(tmp_path / "official.pth")["args"]
    assert (args.norm_type, args.drop_path, args.nb_classes) == ("layernorm", 0.1, 3)
    assert {type(value) for value in vars(args).values()} <= {int, float, str, bool, type(None)}


@pytest.mark.parametrize(
    ("images", "message"),
    [
        (
            np.zeros((9, 8, 8), np.uint8),
            r"test\.npy holds uint8 \(9, 8, 8\): uint8 \(n, height, width, 3\) is required",
        ),
        (
            np.ones((9, 8, 8, 3), np.uint8),
            r"test\.npy holds no numbers above 1, and 255 is white: multiply numbers of 0",
        ),
        (np.zeros((9, 8, 8, 3)), r"test\.npy holds float64 \(9, 8, 8, 3\): uint8"),
        (
            np.zeros((9, 8, 8, 3), np.uint8),
            r"test\.npy holds no numbers above 1, and 255 is white: multiply numbers of 0",
        ),
        (np.full((8, 8, 8, 3), 99, np.uint8), r"test\.npy has 8 images, .*test\.label has 9 lines: they must belong"),
        (np.full((9, 7, 8, 3), 99, np.uint8), "images of 7 x 8 pixels, the model reads --image-size 8: resize or crop"),
        (np.array([{}] * 9), r"test\.npy is not a file of numpy\.save, or is truncated"),
        (b"\x93NUMPY", r"test\.npy is not a file of numpy\.save, or is truncated"),
        (
            {"x": np.zeros(2), "y": np.zeros(2)},
            r"test\.npy is an archive of numpy\.savez \(x, y\): write its images with",
        ),
        (None, r"test\.npy does not exist: give the folder that holds input/ and label/"),
    ],
)
def test_images_that_do_not_fit(images, message, folder, tmp_path):
    data = tiny_images.write(tmp_path / "data")
    path = data / "input" / "test.npy"
    path.unlink()
    if isinstance(images, bytes):
        path.write_bytes(images)
    elif isinstance(images, dict):
        with open(path, "wb") as stream:
            np.savez(stream, **images)
    elif images is not None:
        np.save(path, images, allow_pickle=True)
    with pytest.raises((ValueError, FileNotFoundError), match=message):
        task_of(data, image_size=8).load_dataset("test")


@pytest.mark.parametrize("file", ["cat/1.png", "train/cat/1.png", "1.png"])
def test_a_folder_without_the_split(file, tmp_path):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    with pytest.raises(FileNotFoundError, match="the split valid: .* own-images"):
        task_of(tmp_path).load_dataset("valid")


def test_classes_that_do_not_exist(folder):
    with pytest.raises(ValueError, match=r"classes are 0 to 1 \(--image-class-num 2\)"):
        task_of(folder, classes=2).load_dataset("train")


@pytest.mark.parametrize(
    ("arch", "task", "message"),
    [
        ("mega_image_tiny", "lra-image", "mega_image_tiny is an image classifier: give --task image-classification"),
        ("mega_lra", "image-classification", "mega_lra is a classifier: give --task lra-text, lra-image or"),
    ],
)
def test_other_tasks_are_refused(arch, task, message, tmp_path, capsys):
    assert console.run("train", [str(tmp_path), "--arch", arch, "--task", task]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("sorted_by_class", [True, False])
def test_classes_without_training_are_told(sorted_by_class, folder, tmp_path, caplog):
    """As of data that were sorted by class and then cut; with each class in both splits nothing is told."""
    data = shutil.copytree(folder, tmp_path / "data")
    for split in ("train", "valid"):
        path = data / "label" / f"{split}.label"
        labels = np.arange(len(path.read_text().split())) % 2 + (split == "valid" and sorted_by_class)
        path.write_text("".join(f"{label}\n" for label in labels))
    task = task_of(data, image_size=8, classes=3)
    for split in ("valid", "train"):  # as in a training
        task.get_batch_iterator(dataset=task.load_dataset(split), max_sentences=2)
    found = [message for message in caplog.messages if "have a class that no example of train has: 2; if" in message]
    assert len(found) == sorted_by_class
