"""The classification tasks: layouts of data, what does not fit, every example scored, numbers that are logged."""

import json
import shutil
from argparse import Namespace

import numpy as np
import pytest
import torch
from fairseq import models
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

BASE = {"seed": 1, "max_valid_steps": None}


def make(task_class, config, folder, **options):
    cfg = OmegaConf.structured(config)
    OmegaConf.set_struct(cfg, False)
    return task_class.setup_task(OmegaConf.merge(cfg, {**BASE, "data": str(folder), **options}))


def text_task(folder, **options):
    return make(LRATextTask, LRATextConfig, folder, **options)


def image_task(folder, **options):
    return make(LRAImageTask, LRAImageConfig, folder, **options)


def speech_task(folder, **options):
    return make(SpeechCommandsTask, SpeechCommandsConfig, folder, **options)


def knowing(task, **model):
    """The task after it has built a model of these properties."""
    for name, value in {"longest": 64, "classes": 3, **model}.items():
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
    task = knowing(text_task(texts))
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
    task = knowing(text_task(texts))
    with data_utils.numpy_seed(1):
        want = np.random.permutation(lra_data.SIZES["train"])
    assert task.load_dataset("train").ordered_indices().tolist() == want.tolist()
    lengths = task.load_dataset("valid").sizes[task.dataset("valid").ordered_indices()]
    assert lengths.tolist() == sorted(lengths, reverse=True)
    plain = knowing(text_task(texts, no_shuffle=True))
    assert plain.load_dataset("train").ordered_indices().tolist() == list(range(lra_data.SIZES["train"]))


def test_order_of_a_training_split_of_another_name(texts, tmp_path):
    task = knowing(text_task(texts))
    for folder in ("src-bin", "label-bin"):
        for suffix in ("bin", "idx"):
            path = tmp_path / folder / f"mine.{suffix}"
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((texts / folder / f"train.{suffix}").read_bytes())
        (tmp_path / folder / "dict.txt").write_bytes((texts / folder / "dict.txt").read_bytes())
    renamed = knowing(text_task(tmp_path)).load_dataset("mine", epoch=1, combine=True, data_selector=None, tpu=False)
    assert renamed.ordered_indices().tolist() == task.load_dataset("train").ordered_indices().tolist()


def test_cls_and_cutting(texts):
    task = knowing(text_task(texts), pooling="cls", longest=4)
    dataset = task.load_dataset("test")
    assert all(dataset[i]["source"][0][0] == task.cls_index for i in range(len(dataset)))
    assert dataset.sizes.max() == 4


def test_pairs_layout(pairs):
    task = knowing(text_task(pairs))
    assert task.documents == 2
    batch = task.load_dataset("valid").collater([task.dataset("valid")[0]])
    assert set(batch["net_input"]) == {"src_tokens", "src_lengths", "src1_tokens", "src1_lengths"}


@pytest.mark.parametrize("change", ["counts", "order", "more", "fewer"])
def test_both_documents_have_one_dictionary(change, pairs, tmp_path):
    """The numbers of the second documents are read with the first ones' dictionary."""
    folder = shutil.copytree(pairs, tmp_path / "data")
    path = folder / "src1-bin" / "dict.txt"
    one, two, *rest = path.read_text().splitlines()
    lines = {
        "counts": [f"{line.split()[0]} 1" for line in (one, two, *rest)],
        "order": [two, one, *rest],
        "more": [one, two, *rest, "other 1"],
        "fewer": [one, two, *rest[:-1]],
    }
    path.write_text("".join(f"{line}\n" for line in lines[change]))
    if change == "counts":
        assert text_task(folder).documents == 2
        return
    with pytest.raises(ValueError, match="source: .*src-bin/dict.txt, .*src1-bin/dict.txt"):
        text_task(folder)


def test_text_that_does_not_fit(texts, pairs, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"src-bin/dict\.txt does not exist: the data folder must hold"):
        text_task(tmp_path)
    with pytest.raises(FileNotFoundError, match="Dataset not found: nowhere"):
        text_task(texts).load_dataset("nowhere")
    with pytest.raises(ValueError, match=r"label-bin/train line \d+: class 2 does not exist, classes are 0 to 1"):
        knowing(text_task(texts), classes=2).load_dataset("train")
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "src-bin").symlink_to(texts / "src-bin")
    (mixed / "label-bin").mkdir()
    (mixed / "label-bin" / "dict.txt").symlink_to(texts / "label-bin" / "dict.txt")
    for ending in ("bin", "idx"):
        (mixed / "label-bin" / f"test.{ending}").symlink_to(texts / "label-bin" / f"valid.{ending}")
    sizes = lra_data.SIZES
    with pytest.raises(
        ValueError, match=rf"src-bin/test has {sizes['test']} lines, .*label-bin/test has {sizes['valid']}"
    ):
        text_task(mixed).load_dataset("test")


def test_image_layout(images):
    task = knowing(image_task(images, pixel_normalization=[0.48, 0.24]))
    dataset = task.load_dataset("train")
    assert (images / "input" / "train.src.uint8").is_file()
    batch = dataset.collater([dataset[0]])
    first = (images / "input" / "train.src").read_text().split("\n")[0].split()
    want = (torch.tensor([float(pixel) for pixel in first]) / 255 - 0.48) / 0.24
    torch.testing.assert_close(batch["net_input"]["src_tokens"][0], want)
    assert image_task(images).normalization == (0.5, 0.5)
    cached = knowing(image_task(images, pixel_cache=str(images / "cache")))
    cached.load_dataset("valid")
    assert not (images / "input" / "valid.src.uint8").exists() and len(list((images / "cache").iterdir())) == 1


def test_images_that_do_not_fit(images):
    with pytest.raises(ValueError, match="--pixel-normalization 0.5 0.0: give a mean"):
        image_task(images, pixel_normalization=[0.5, 0.0])
    with pytest.raises(
        ValueError, match=r"images of 16 pixels are longer than --max-positions 15: give --max-positions 16"
    ):
        knowing(image_task(images), longest=15).load_dataset("test")
    labels = images / "label" / "test.label"
    given = labels.read_text()
    labels.write_text(given + "1\n")
    count = lra_data.SIZES["test"]
    with pytest.raises(ValueError, match=rf"test\.src has {count} lines, .*test\.label has {count + 1}"):
        knowing(image_task(images)).load_dataset("test")
    labels.write_text(given.replace("1", "7", 1))
    with pytest.raises(ValueError, match=r"test\.label line \d+: class 7 does not exist, classes are 0 to 2"):
        knowing(image_task(images)).load_dataset("test")


def test_images_of_a_split_have_the_size_of_training(images):
    source = images / "input" / "valid.src"
    source.write_text("".join(line.rsplit(" ", 4)[0] + "\n" for line in source.read_text().splitlines()))
    task = knowing(image_task(images))
    task.load_dataset("train")
    with pytest.raises(ValueError, match=r"valid\.src: images of 12 pixels, and .*train\.src has images of 16"):
        task.load_dataset("valid")


def test_the_task_learns_what_the_model_reads(images, monkeypatch):
    model = build(kind="image", max_positions=16)
    monkeypatch.setattr(models, "build_model", lambda *unused: model)
    task = image_task(images)
    assert task.build_model(None) is model
    assert (task.longest, task.classes, task.pooling) == (16, 3, "mp")


def test_speech_layout(tmp_path):
    lra_data.write_speech(tmp_path)
    task = knowing(speech_task(tmp_path))
    dataset = task.load_dataset("valid")
    samples = torch.load(tmp_path / "processed_data" / "raw" / "val_X.pt")
    batch = dataset.collater([dataset[3], dataset[4]])
    assert batch["net_input"]["src_tokens"].equal(samples[3:5, :, 0])
    assert dataset.ordered_indices().tolist() == list(range(len(samples)))
    old = tmp_path / "processed_data" / "raw" / "test_X.pt"
    torch.save(torch.load(old).squeeze(2), old, _use_new_zipfile_serialization=False)
    assert task.load_dataset("test").collater([task.dataset("test")[0]])["net_input"]["src_tokens"].shape == (1, 20)


class TestSpeechScale:
    """The scale of the samples goes from the record of the data into the model, and two scales never meet."""

    @staticmethod
    def model(folder, **options):
        values = Namespace(encoder_layers=1, encoder_chunk_size=20, sentence_class_num=3)
        return MegaClassifier.build_model(values, speech_task(folder, **options))

    @pytest.fixture
    def folder(self, tmp_path):
        """A function that makes data of a scale; None: data without SOURCE.json, as the authors' are."""

        def write(scaling):
            folder = lra_data.write_speech(tmp_path / str(scaling))
            if scaling is not None:
                (folder / "SOURCE.json").write_text(json.dumps({"settings": {"scaling": scaling}}))
            return folder

        return write

    @pytest.mark.parametrize(("trained", "given"), [("once", "twice"), ("twice", "once")])
    def test_checkpoints_are_refused_on_the_other_scale(self, folder, trained, given):
        state = self.model(folder(trained)).state_dict()
        with pytest.raises(ValueError, match=f"samples divided by 32768 {trained}, .* are divided {given}"):
            self.model(folder(given)).load_state_dict(state)

    @pytest.mark.parametrize(("trained", "given"), [("twice", "twice"), (None, "once"), ("twice", None), (None, None)])
    def test_checkpoints_go_on_otherwise(self, folder, trained, given):
        state = self.model(folder(trained)).state_dict()
        model = self.model(folder(given))
        model.load_state_dict(dict(state))
        state.pop("sample_scale")  # of earlier versions and of the published code
        model.load_state_dict(state)

    def test_the_option_refuses_other_data(self, folder, caplog):
        assert speech_task(folder("once"), sc_scaling="once").scaling == "once"
        assert speech_task(folder(None), sc_scaling="once").scaling is None
        assert "--sc-scaling once cannot be checked: " in caplog.text
        with pytest.raises(ValueError, match="--sc-scaling twice: .*divided by 32768 once, as card.json"):
            speech_task(folder("once"), sc_scaling="twice")

    def test_a_broken_source_is_named(self, folder):
        where = folder(None)
        (where / "SOURCE.json").write_text("[]")
        with pytest.raises(ValueError, match="SOURCE.json was not written by fairseq-mega-prepare"):
            speech_task(where)


def test_speech_that_does_not_fit(tmp_path):
    folder = lra_data.write_speech(tmp_path) / "processed_data" / "raw"
    with pytest.raises(ValueError, match="--sc-dropped-rate 0.3: only 0"):
        speech_task(tmp_path, sc_dropped_rate=0.3)
    with pytest.raises(ValueError, match=r"clips of 20 samples are longer than --max-positions 10"):
        knowing(speech_task(tmp_path), longest=10).load_dataset("test")
    with pytest.raises(ValueError, match=r"train_y\.pt item \d+: class 2 does not exist"):
        knowing(speech_task(tmp_path), classes=2).load_dataset("train")
    with pytest.raises(FileNotFoundError, match=r"nowhere_X\.pt does not exist"):
        speech_task(tmp_path).load_dataset("nowhere")
    labels = torch.load(folder / "train_y.pt")
    for name, content, message in (
        ("train_y.pt", labels[:-1], r"train_X\.pt has \d+ clips, .*train_y\.pt has \d+ labels"),
        ("train_y.pt", labels.float(), r"train_y\.pt holds float32 \(\d+,\): integers \(n,\) are required"),
        ("val_X.pt", labels, r"val_X\.pt holds int64 \(\d+,\): float \(n, L, 1\) is required"),
        ("test_X.pt", {"x": 1}, r"test_X\.pt holds a dict: a tensor is required"),
    ):
        torch.save(content, folder / name)
        with pytest.raises(ValueError, match=message):
            split = name.split("_")[0].replace("val", "valid")
            speech_task(tmp_path).load_dataset(split)
    (folder / "val_y.pt").write_bytes((folder / "val_y.pt").read_bytes()[:100])
    with pytest.raises(ValueError, match=r"val_y\.pt"):
        speech_task(tmp_path).load_dataset("valid")


def test_every_example_is_in_one_batch(images):
    """Whatever multiple is required and however many processes share the batches."""
    task = knowing(image_task(images))
    dataset = task.load_dataset("test")
    seen = []
    for shard in range(2):
        iterator = task.get_batch_iterator(
            dataset=dataset,
            max_sentences=5,
            max_positions=3,
            required_batch_size_multiple=8,
            num_shards=2,
            shard_id=shard,
        )
        seen += [i for batch in iterator.next_epoch_itr(shuffle=False) if batch for i in batch["id"].tolist()]
    assert sorted(seen) == list(range(lra_data.SIZES["test"]))
    with pytest.raises(ValueError, match="--max-tokens 9: an example has 16 tokens"):
        task.get_batch_iterator(dataset=dataset, max_tokens=9)
    dataset.order = dataset.order[:-1]
    with pytest.raises(RuntimeError, match="the batches hold 28 of 29 examples"):
        task.get_batch_iterator(dataset=dataset, max_sentences=5)


def outputs(task, model, criterion, size):
    iterator = task.get_batch_iterator(dataset=task.dataset("test"), max_sentences=size)
    with torch.no_grad():
        return [task.valid_step(batch, model, criterion)[2] for batch in iterator.next_epoch_itr(shuffle=False)]


@pytest.mark.parametrize("size", [1, 7, 29])
def test_numbers_that_are_logged(size, images):
    """Loss and accuracy depend neither on the batches nor on how many processes summed them."""
    task = knowing(image_task(images))
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


def test_examples_that_are_missing(images):
    task = knowing(image_task(images))
    task.load_dataset("test")
    criterion = LRACrossEntropyCriterion(task)
    logs = outputs(task, build(kind="image").eval(), criterion, 5)
    with metrics.aggregate(new_root=True) as complete:
        task.reduce_metrics(logs, criterion)
    task.post_validate(None, {}, complete)
    with metrics.aggregate(new_root=True), pytest.raises(RuntimeError, match="25 of 29 examples were scored"):
        task.reduce_metrics(logs[:-1], criterion)  # fairseq-validate
    task.begin_valid_epoch(1, None)
    with metrics.aggregate(new_root=True) as partial:
        task.reduce_metrics(logs[:-1], criterion)  # fairseq-train reduces batch by batch
    with pytest.raises(RuntimeError, match="25 of 29 examples were scored"):
        task.post_validate(None, {}, partial)
    task.cfg.max_valid_steps = 3
    task.post_validate(None, {}, partial)
