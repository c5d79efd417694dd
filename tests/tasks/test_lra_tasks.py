"""The classification tasks: layouts of data, what does not fit, every example scored, numbers that are logged."""

import json
import shutil
from argparse import Namespace
from typing import Any, Dict

import numpy as np
import pytest
import torch
from fairseq.data import data_utils
from fairseq.logging import metrics
from omegaconf import OmegaConf

from fairseq_mega.criterions.lra_cross_entropy import LRACrossEntropyCriterion
from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.tasks.lra_image import LRAImageConfig, LRAImageTask
from fairseq_mega.tasks.lra_text import LRATextConfig, LRATextTask
from fairseq_mega.tasks.speech_commands import SpeechCommandsConfig, SpeechCommandsTask
from tests.support import lra_data
from tests.support.tiny_classifier import build

FOR_TRAINING = {"data_selector": None}  # as fairseq-train loads --train-subset
TASKS: Dict[str, Any] = {
    "text": (LRATextTask, LRATextConfig),
    "image": (LRAImageTask, LRAImageConfig),
    "speech": (SpeechCommandsTask, SpeechCommandsConfig),
}


def task_of(kind, folder, model=(), **options):
    """The task after it has built a model of these properties."""
    task_class, config = TASKS[kind]
    cfg = OmegaConf.structured(config)
    OmegaConf.set_struct(cfg, False)
    task = task_class.setup_task(OmegaConf.merge(cfg, {"seed": 1, "data": str(folder), **options}))
    for name, value in {"longest": 64, "classes": 3, **dict(model)}.items():
        setattr(task, name, value)
    return task


@pytest.fixture(scope="module")
def texts(tmp_path_factory):
    return lra_data.write_texts(tmp_path_factory.mktemp("texts"))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return lra_data.write_texts(tmp_path_factory.mktemp("pairs"), pairs=True)


@pytest.fixture
def images(tmp_path):
    return lra_data.write_images(tmp_path / "images")


def test_text_layout(texts):
    task = task_of("text", texts)
    assert task.dictionary[task.cls_index] == "<CLS>" and task.cls_index == len(task.dictionary) - 1
    assert task.documents == 1 and task.input_type == "text"
    dataset = task.load_dataset("test")
    source, labels = lra_data.lines(texts, "test")
    symbols = task.label_dictionary
    for index in (0, 5, len(dataset) - 1):
        example = dataset[index]
        assert task.dictionary.string(example["source"][0]) == source[index]
        assert symbols[example["target"] + symbols.nspecial] == labels[index]
    counts = [lra_data.lines(texts, "train")[1].count(symbols[symbols.nspecial + rank]) for rank in range(3)]
    assert counts == sorted(counts, reverse=True), "class 0 is the most frequent label"


def test_order_of_texts(texts):
    """The published order in training, whatever the name of the split; else by length."""
    with data_utils.numpy_seed(1):
        want = np.random.permutation(lra_data.SIZES["valid"])
    dataset = task_of("text", texts).load_dataset("valid", **FOR_TRAINING)
    assert dataset.ordered_indices().tolist() == want.tolist()
    dataset = task_of("text", texts).load_dataset("valid")
    assert dataset.sizes[dataset.ordered_indices()].tolist() == sorted(dataset.sizes, reverse=True)
    plain = task_of("text", texts, no_shuffle=True).load_dataset("train", **FOR_TRAINING)
    assert plain.ordered_indices().tolist() == list(range(lra_data.SIZES["train"]))


@pytest.mark.parametrize("change", ["counts", "order"])
def test_both_documents_have_one_dictionary(change, pairs, tmp_path):
    """The ids of the second documents are read with the first ones' dictionary."""
    folder = shutil.copytree(pairs, tmp_path / "data")
    path = folder / "src1-bin" / "dict.txt"
    one, two, *rest = path.read_text().splitlines()
    lines = [f"{line.split()[0]} 1" for line in (one, two, *rest)] if change == "counts" else [two, one, *rest]
    path.write_text("".join(f"{line}\n" for line in lines))
    if change == "counts":
        assert task_of("text", folder).documents == 2
        return
    with pytest.raises(ValueError, match="source: .*src-bin/dict.txt, .*src1-bin/dict.txt"):
        task_of("text", folder)


def test_labels_of_another_split_are_refused(texts, tmp_path):
    mixed = shutil.copytree(texts, tmp_path / "mixed")
    for ending in ("bin", "idx"):
        shutil.copy(mixed / "label-bin" / f"valid.{ending}", mixed / "label-bin" / f"test.{ending}")
    with pytest.raises(ValueError, match="29 examples and 21 labels"):
        task_of("text", mixed).load_dataset("test")


def test_image_layout(images):
    dataset = task_of("image", images, pixel_normalization=[0.48, 0.24]).load_dataset("train")
    batch = dataset.collater([dataset[0]])
    first = (images / "input" / "train.src").read_text().split("\n")[0].split()
    want = (torch.tensor([float(pixel) for pixel in first]) / 255 - 0.48) / 0.24
    torch.testing.assert_close(batch["net_input"]["src_tokens"][0], want)
    assert task_of("image", images).normalization == (0.5, 0.5)
    task_of("image", images, pixel_cache=str(images / "cache")).load_dataset("valid")
    assert len(list((images / "cache").iterdir())) == len(list(images.glob("input/*.uint8"))) == 1


def test_images_of_a_split_have_the_size_of_training(images):
    source = images / "input" / "valid.src"
    source.write_text("".join(line.rsplit(" ", 4)[0] + "\n" for line in source.read_text().splitlines()))
    with pytest.raises(ValueError, match=r"valid\.src has 12 pixels a line, train\.src 16"):
        task_of("image", images).load_dataset("valid")


def test_speech_layout(tmp_path):
    folder = lra_data.write_speech(tmp_path) / "processed_data" / "raw"
    task = task_of("speech", tmp_path)
    dataset = task.load_dataset("valid")
    samples = torch.load(folder / "val_X.pt")
    batch = dataset.collater([dataset[3], dataset[4]])
    assert batch["net_input"]["src_tokens"].equal(samples[3:5, :, 0])
    assert dataset.ordered_indices().tolist() == list(range(len(samples)))
    torch.save(samples.repeat(1, 1, 2), folder / "val_X.pt")
    with pytest.raises(ValueError, match=r"val_X\.pt"):
        task.load_dataset("valid")


@pytest.mark.parametrize(
    ("trained", "given"),
    [("once", "twice"), ("twice", "twice"), (None, "once"), ("twice", None)],
)
def test_two_scales_of_speech_never_meet(trained, given, tmp_path):
    """The scale of the samples goes from the record of the data, if they have one, into the model."""

    def folder(scaling):
        folder = lra_data.write_speech(tmp_path / str(scaling))
        if scaling is not None:
            (folder / "SOURCE.json").write_text(json.dumps({"settings": {"scaling": scaling}}))
        return folder

    def model(scaling):
        values = Namespace(encoder_layers=1, encoder_chunk_size=20, sentence_class_num=3)
        return MegaClassifier.build_model(values, task_of("speech", folder(scaling)))

    state = model(trained).state_dict()
    if None not in (trained, given) and trained != given:
        with pytest.raises(ValueError, match=f"{trained}, .* {given}"):
            model(given).load_state_dict(state)
        with pytest.raises(ValueError, match=f"--sc-scaling {trained}"):
            task_of("speech", folder(given), sc_scaling=trained)
        return
    model(given).load_state_dict(dict(state))
    state.pop("sample_scale")  # of earlier versions and of the published code
    model(given).load_state_dict(state)
    assert task_of("speech", folder(given), sc_scaling=given).scaling == given


def outputs(task, model, criterion, size):
    iterator = task.get_batch_iterator(dataset=task.dataset("test"), max_sentences=size)
    with torch.no_grad():
        return [task.valid_step(batch, model, criterion)[2] for batch in iterator.next_epoch_itr(shuffle=False)]


@pytest.mark.parametrize("size", [7, 29])
def test_numbers_that_are_logged(size, images):
    """Loss and accuracy depend neither on the batches nor on how many processes summed them."""
    task = task_of("image", images)
    dataset = task.load_dataset("test")
    model, criterion = build(kind="image").eval(), LRACrossEntropyCriterion(task)
    whole = dataset.collater([dataset[i] for i in range(len(dataset))])
    with torch.no_grad():
        logits = model(**whole["net_input"])
    loss = torch.nn.functional.cross_entropy(logits, whole["target"]).item() / 0.6931472
    right = int((logits.argmax(1) == whole["target"]).sum())
    logs = outputs(task, model, criterion, size)
    summed = [{key: sum(float(log[key]) for log in logs) for key in logs[0]}, {}]
    for given in (logs, summed):
        with metrics.aggregate(new_root=True) as found:
            task.reduce_metrics(given, criterion)
        values = found.get_smoothed_values()
        assert values["loss"] == pytest.approx(loss, abs=1e-3)
        assert values["accuracy"] == pytest.approx(100 * right / 29, abs=5e-3)
        assert values["correct"] == f"{right} of 29"
        json.dumps(values)
