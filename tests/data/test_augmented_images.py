"""Augmented images: which are drawn, what they look like, and mixed batches."""

import pickle
import random

import numpy as np
import pytest
import torch

from fairseq_mega.data.augmented_images import (
    AugmentedImageDataset,
    BatchMixing,
    ImageDataset,
    evaluation_transform,
    seeded,
    training_transform,
)
from fairseq_mega.data.image_folder import ImageFolder
from tests.support import tiny_images


class Numbers:
    """Images that consist of their own index."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return torch.full((3, 2, 2), float(index))


def noise(image):
    """The image, and what each of the three generators draws."""
    drawn = torch.tensor([random.random(), float(np.random.rand()), torch.rand(()).item()])
    return torch.cat([image, drawn[:, None, None].expand(3, 1, 2)], dim=1)


def dataset_of(count, transform=noise, **options):
    return AugmentedImageDataset(Numbers(count), np.arange(count) % 5, transform, 2, **{"seed": 1, **options})


def batches_of(dataset, size, epoch=1):
    dataset.set_epoch(epoch)
    batches = dataset.batch_by_size(dataset.ordered_indices(), max_sentences=size)
    return [dataset.collater([dataset[place] for place in batch]) for batch in batches]


def images_in(batches):
    """Image of each item."""
    return [int(image) for batch in batches if batch for image in batch["net_input"]["images"][:, 0, 0, 0]]


@pytest.mark.parametrize(("count", "repetitions", "want"), [(600, 1, 600), (600, 3, 512), (255, 3, 255)])
def test_images_of_an_epoch(count, repetitions, want):
    dataset = dataset_of(count, repetitions=repetitions)
    assert len(dataset) == want
    batches = batches_of(dataset, 50)
    images = images_in(batches)
    assert [int(label) for batch in batches for label in batch["target"]] == [image % 5 for image in images]
    numbers = [images.count(image) for image in set(images)]
    assert len(images) == want and numbers.count(repetitions) == want // repetitions
    assert len(numbers) == -(-want // repetitions)
    assert images_in(batches_of(dataset, 50, epoch=2)) != images


def test_what_is_drawn():
    """Something else for each repetition and epoch, the same each time it is asked for; globals stay as they were."""
    dataset = dataset_of(6, repetitions=3)
    dataset.set_epoch(2)
    state = random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist()
    drawn = torch.stack([dataset[place]["source"][:, 2, 0] for place in range(6)])
    assert len(set(drawn.flatten().tolist())) == 18
    assert torch.equal(dataset[4]["source"][:, 2, 0], drawn[4])
    assert state == (random.getstate(), pickle.dumps(np.random.get_state()), torch.get_rng_state().tolist())
    image, repetition = dataset.image_at(4)
    with seeded(1, 2, 0, image, repetition):
        assert torch.equal(noise(torch.zeros(3, 2, 2))[:, 2, 0], drawn[4])
    for other in ({"seed": 2}, {"repetitions": 1}):
        assert not torch.equal(dataset_of(6, **{"repetitions": 3, **other})[4]["source"][:, 2, 0], drawn[4])


def test_limits_of_batches():
    dataset = dataset_of(10)
    everything = dataset.ordered_indices()
    assert [len(batch) for batch in dataset.batch_by_size(everything, max_tokens=15)] == [3, 3, 3, 1]
    assert [len(batch) for batch in dataset.batch_by_size(everything, max_tokens=15, max_sentences=2)] == [2] * 5
    assert [len(batch) for batch in dataset.batch_by_size(everything)] == [10]
    assert images_in(batches_of(dataset_of(4, shuffle=False), 3, epoch=5)) == [0, 1, 2, 3]


def test_smoothed_targets():
    images = torch.rand(3, 3, 2, 2)
    mixed, targets = BatchMixing(4, 0.0, 0.0, 0.1)(images, torch.tensor([2, 0, 3]))
    assert mixed is images
    want = torch.full((3, 4), 0.025)
    want[[0, 1, 2], [2, 0, 3]] = 0.925
    torch.testing.assert_close(targets, want)


@tiny_images.needs_timm
@pytest.mark.parametrize(("mixup", "cutmix", "smoothing"), [(0.8, 0.0, 0.0), (0.0, 1.0, 0.0), (0.8, 1.0, 0.1)])
@pytest.mark.parametrize("count", [1, 5])
def test_mixed_targets_tell_what_is_in_the_images(mixup, cutmix, smoothing, count):
    """Images of one value each: the share of each value in a mixed image is the weight of its class."""
    mixing = BatchMixing(count, mixup, cutmix, smoothing)
    for seed in range(20):
        images = torch.eye(count)[:, :, None, None].repeat(1, 1, 16, 16)  # channel of its class is 1
        with seeded(seed):
            mixed, targets = mixing(images, torch.arange(count))
        assert mixed.shape == (count, count, 16, 16) and targets.shape == (count, count)
        torch.testing.assert_close(targets.sum(-1), torch.ones(count))
        torch.testing.assert_close((1 - smoothing) * mixed.mean((2, 3)) + smoothing / count, targets)


@tiny_images.needs_timm
def test_transforms(tmp_path):
    """Evaluation by hand with PIL; in training something else each time, of the same kind."""
    from PIL import Image

    images = ImageFolder(tiny_images.write_files(tmp_path, size=40) / "train")
    dataset = ImageDataset(images, images.labels, evaluation_transform(28), 28)
    small = images[7].resize((36, 32), Image.Resampling.BICUBIC)  # 45 x 40: the shorter side becomes 28 * 256 / 224
    cut = np.asarray(small.crop((4, 2, 32, 30))) / 255
    want = torch.from_numpy((cut - [0.485, 0.456, 0.406]) / [0.229, 0.224, 0.225]).permute(2, 0, 1)
    torch.testing.assert_close(dataset[7]["source"].double(), want, atol=1e-5, rtol=0)
    drawn = AugmentedImageDataset(images, images.labels, training_transform(28), 28, seed=1, repetitions=3)
    pair = drawn[0]["source"], drawn[1]["source"]
    assert {image.shape for image in pair} == {(3, 28, 28)} and not torch.equal(*pair)
    names = [type(part).__name__ for part in training_transform(28).transforms]
    assert names[1:3] == ["RandomHorizontalFlip", "RandAugment"] and names[-1] == "RandomErasing"


@tiny_images.needs_timm
def test_posterizing_takes_each_magnitude(tmp_path):
    """Magnitudes vary from 0 to 10; at 10 no bits are kept, and the image is black."""
    images = ImageFolder(tiny_images.write_files(tmp_path, size=40) / "train")
    image = images[7]
    (drawing,) = [part for part in training_transform(28).transforms if type(part).__name__ == "RandAugment"]
    drawing = pickle.loads(pickle.dumps(drawing))  # as workers receive it
    assert {operation.magnitude for operation in drawing.ops} == {9}
    (operation,) = [operation for operation in drawing.ops if operation.name == "PosterizeIncreasing"]
    operation.prob, operation.magnitude_std = 1.0, 0
    for operation.magnitude in range(11):
        bits = 4 - operation.magnitude * 4 // 10
        np.testing.assert_array_equal(np.asarray(operation(image)), np.asarray(image) & (256 - 2 ** (8 - bits)))
