"""--task image-classification on a folder per class: splits, options, training with augmentation and its resumption."""

import importlib
import json
import re
import shutil
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from fairseq_mega.cli import console
from fairseq_mega.compat.files import card
from fairseq_mega.data.image_augmentation import evaluation_transform
from fairseq_mega.data.image_files import read_image
from fairseq_mega.lab.evaluate.new_examples import PictureReader
from tests.support import tiny_images
from tests.support.helpers import forget_earlier_runs, run_fairseq
from tests.tasks.test_image_classification import MODEL, task_of

AUGMENTED = ["--augmentation", "randaugment", "--repeated-augmentation", 3]
AUGMENTED += ["--mixup", 0.8, "--cutmix", 1.0, "--label-smoothing", 0.1]
TRAINING = ["--task", "image-classification", *MODEL, "--criterion", "lra_cross_entropy", "--optimizer", "adam"]
TRAINING += ["--lr", 0.003, "--batch-size", 8, "--no-progress-bar", "--log-format", "json", "--log-interval", 1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_images.write_files(tmp_path_factory.mktemp("files"))


def known(folder, **options):
    task = task_of(folder, image_size=8, classes=3)
    task.cfg.update({"train_subset": "train", **options})
    return task


def logged(output, key):
    """Values of a key in the lines of --log-format json."""
    lines = re.findall(r"\{.*\}", output)
    return [entry[key] for entry in map(json.loads, (line for line in lines if line.startswith('{"'))) if key in entry]


@tiny_images.needs_timm
def test_splits(folder, tmp_path):
    """Scored images are never augmented, also those of the training part; valid may be called val."""
    data = shutil.copytree(folder, tmp_path / "data")
    (data / "valid").rename(data / "val")
    task = known(data, mixup=0.8, repeated_augmentation=3)
    assert len(task.load_dataset("valid")) == 7
    for dataset in (task.load_dataset("valid"), task.load_dataset("train", task_cfg=task.cfg)):
        batch = dataset.collater([dataset[0], dataset[1]])
        assert batch["net_input"]["images"].shape == (2, 3, 8, 8) and batch["target"].dtype == torch.long
    batch = task.load_dataset("train").collater([task.datasets["train"][0]])
    assert batch["target"].shape == (1, 3) and batch["target"].is_floating_point()


@tiny_images.needs_timm
def test_arrays_are_augmented_too(tmp_path):
    data = tiny_images.write(tmp_path / "data")
    task = known(data)
    plain = task.load_dataset("train")
    order = known(data, label_smoothing=0.1).load_dataset("train")
    place = order.drawn.tolist().index(5)
    torch.testing.assert_close(order[place]["source"], plain.collater([plain[5]])["net_input"]["images"][0])
    assert known(data, augmentation="randaugment").load_dataset("train")[0]["source"].shape == (3, 8, 8)


def palette(image):
    return image.quantize(256)


def turned(image):
    """The picture on its side, with the EXIF orientation that puts it right."""
    return image.transpose(2)  # a quarter to the left


FORMS = {
    "colours": (lambda image: image, "png", {}),
    "palette": (palette, "png", {}),
    "palette of a GIF": (palette, "gif", {}),
    "alpha": (lambda image: image.convert("RGBA"), "png", {}),
    "grey": (lambda image: image.convert("L"), "png", {}),
    "grey with alpha": (lambda image: image.convert("LA"), "png", {}),
    "turned": (turned, "png", {"orientation": 6}),
    "bitmap": (lambda image: image, "bmp", {}),
}


@tiny_images.needs_timm
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("road", ["classify", "folder", "training folder"])
def test_a_picture_is_seen_as_the_array_of_it(form, road, tmp_path):
    """A model trained on arrays reads a picture whole, as the arrays are, in whatever form the file is."""

    convert, ending, exif = FORMS[form]
    pixels = np.random.default_rng(2).integers(256, size=(8, 8, 3)).astype(np.uint8)
    pixels = pixels[..., :1].repeat(3, axis=2) if "grey" in form else pixels
    image = Image.fromarray(pixels)
    data = tiny_images.write(tmp_path / "data")
    array = np.load(data / "input" / "train.npy")
    array[0] = pixels
    np.save(data / "input" / "train.npy", array)
    dataset = known(data).load_dataset("train")
    expected = dataset.collater([dataset[0]])["net_input"]["images"]

    others = tmp_path / "others"
    for number in range(3):
        (others / "test" / f"class{number}").mkdir(parents=True)
        orientation = Image.Exif()
        if exif:
            orientation[0x0112] = exif["orientation"]
        path = others / "test" / f"class{number}" / f"one.{ending}"
        convert(image).save(path, **({"exif": orientation} if exif else {}))
    if road == "training folder":  # beside the arrays
        (others / "test").rename(data / "test")
        (data / "input" / "test.npy").unlink()
        task = known(data)
    else:
        task = known(others)
        card.check("a.pt", known(data).data_card(), task, {})
    if road == "classify":
        _, inputs = PictureReader(task).read_file(path)
        torch.testing.assert_close(inputs["images"], expected)
        return
    dataset = task.load_dataset("test")
    torch.testing.assert_close(dataset.collater([dataset[1]])["net_input"]["images"], expected)


@tiny_images.needs_timm
@pytest.mark.parametrize("trained_on", ["arrays", "folders", "unknown"])
@pytest.mark.parametrize("size", [(8, 8), (12, 17)])
def test_a_picture_is_seen_as_in_training(trained_on, size, folder, tmp_path, capsys):
    """Its centre after a resize where training saw that, whatever data it is classified beside."""

    data = tiny_images.write(tmp_path / "data")
    path = tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(2).integers(256, size=(*size, 3)).astype(np.uint8)).save(path)
    task = known(folder if trained_on == "arrays" else data)
    trained = {"arrays": known(data).data_card(), "folders": known(folder).data_card(), "unknown": {}}
    framing = {entry: text for entry, text in trained[trained_on].items() if entry != card.LABELS}
    card.check("a.pt", framing, task, {})
    seen = PictureReader(task).read_file(path)[1]["images"][0]
    kept = 0.875 if trained_on == "folders" else 1.0  # of an old checkpoint the data tell
    torch.testing.assert_close(seen, evaluation_transform(8, kept)(read_image(path)))
    assert ("resized by its shorter side" in capsys.readouterr().err) == (kept == 1 and size != (8, 8))


@tiny_images.needs_timm
def test_batches_of_an_update_do_not_depend_on_processes(tmp_path):
    """Six processes, or two that take three batches each for an update: the same batches, none with an image twice."""
    data = tiny_images.write_files(tmp_path, {"train": 36, "valid": 3})

    def batches(processes, accumulated):
        task = known(data, repeated_augmentation=3, update_freq=[1, accumulated])  # of the first epoch, and afterwards
        dataset = task.load_dataset("train")
        iterator = task.get_batch_iterator(dataset=dataset, max_sentences=2, num_shards=processes, epoch=2)
        found = [batch.tolist() for batch in iterator.frozen_batches]
        assert all(len({dataset.image_at(place)[0] for place in batch}) == len(batch) for batch in found)
        return found

    assert batches(6, 1) == batches(2, 3) == batches(1, 6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"repeated_augmentation": 0}, r"--repeated-augmentation 0: give 1 \(no repetitions\) or more"),
        ({"mixup": -1.0}, "--mixup -1.0: give 0"),
        ({"cutmix": -0.5}, "--cutmix -0.5: give 0"),
        ({"label_smoothing": 1.0}, "--label-smoothing 1.0: give 0 or more, less than 1"),
        ({"repeated_augmentation": 3, "no_shuffle": True}, "--no-shuffle and --repeated-augmentation 3: every epoch"),
    ],
)
def test_options_out_of_range(options, message, folder):
    task = known(folder, **options)
    with pytest.raises(ValueError, match=message):
        type(task).setup_task(task.cfg)


@pytest.mark.parametrize(
    ("test", "told"),
    [
        (None, False),
        (["class0", "class1", "class2"], False),
        (["class0", "class9"], True),
        (["all"], True),
        ([], False),
    ],
)
def test_other_classes_of_the_test_are_told_by_the_training(test, told, folder, tmp_path, caplog):
    """Not refused: no training reads the test images, which may have no labels at all."""
    data = shutil.copytree(folder, tmp_path / "data", ignore=shutil.ignore_patterns("test"))
    if test is not None:
        (data / "test").mkdir()
        shutil.copy(next((data / "train" / "class0").iterdir()), data / "test")
        for name in test:
            shutil.copytree(data / "train" / "class0", data / "test" / name)
    assert len(known(data).load_dataset("train")) > 0
    assert any("the test images cannot be scored" in message for message in caplog.messages) == told


def test_folders_that_do_not_fit(folder, tmp_path):
    with pytest.raises(ValueError, match="train has 3 classes, the model has 5: give --image-class-num 3"):
        task_of(folder, image_size=8, classes=5).load_dataset("train")
    data = shutil.copytree(folder, tmp_path / "data")
    shutil.rmtree(data / "valid" / "class1")
    with pytest.raises(ValueError, match=r"/train and .*/valid must have the same classes: only .*/train has class1"):
        known(data).load_dataset("valid")
    with pytest.raises(FileNotFoundError, match="nothing has no images of the split train"):
        known(tmp_path / "nothing").load_dataset("train")


@pytest.mark.parametrize(
    ("options", "what"),
    [({}, "a folder per class"), ({"augmentation": "randaugment"}, "--augmentation randaugment")],
)
def test_timm_is_missing(options, what, folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "timm.data", None)
    import_module = importlib.import_module
    monkeypatch.setattr(importlib, "import_module", lambda name: None if name == "torchvision" else import_module(name))
    with pytest.raises(ValueError, match=f"{what} requires timm, which is not installed .*--extras images, or pip"):
        known(folder, **options).load_dataset("train")


@tiny_images.needs_timm
def test_training_and_its_resumption(folder, tmp_path, device_flags, capsys):
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
    forget_earlier_runs()
    given = [folder, "--path", tmp_path / "whole" / "checkpoint_last.pt", "--valid-subset", "test", *device_flags]
    capsys.readouterr()
    assert console.run("validate", [str(argument) for argument in [*given, "--batch-size", 4]]) == 0
    captured = capsys.readouterr()
    assert re.search(r"correct \d of 9", captured.out + captured.err)


@tiny_images.needs_timm
@pytest.mark.parametrize("workers", [0, 1])
def test_damaged_images_are_named_by_commands(workers, folder, tmp_path, capsys):
    data = shutil.copytree(folder, tmp_path / "data")
    (data / "train" / "class2" / "005.JPEG").write_bytes(b"\xff\xd8nothing")
    arguments = [data, *TRAINING, "--cpu", "--max-epoch", 1, "--num-workers", workers, "--save-dir", tmp_path / "save"]
    assert console.run("train", [str(argument) for argument in arguments]) != 0
    assert "class2/005.JPEG cannot be decoded" in capsys.readouterr().err
