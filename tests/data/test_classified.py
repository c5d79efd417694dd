"""Datasets with a class per example: batches, cutting, orders, labels."""

import numpy as np
import pytest
import torch

from fairseq_mega.data.classified import check_labels, shuffled
from fairseq_mega.data.classified_text import ClassifiedTextDataset, read_classes
from fairseq_mega.data.number_sequences import NumberSequenceDataset, check_normalization
from tests.support.tiny_mega import EOS, PAD, dictionary


class Lines(list):
    """Token lines as an indexed dataset holds them (int32)."""

    def __init__(self, *rows):
        super().__init__(torch.tensor(row, dtype=torch.int32) for row in rows)
        self.sizes = np.array([len(row) for row in rows])


TEXT = Lines([5, 6, 7, EOS], [8, EOS], [9, 10, EOS])


def test_text_batches():
    dataset = ClassifiedTextDataset([TEXT], np.array([1, 0, 2]), PAD)
    batch = dataset.collater([dataset[0], dataset[1]])
    assert batch["net_input"]["src_tokens"].tolist() == [[5, 6, 7, EOS], [8, EOS, PAD, PAD]]
    assert batch["net_input"]["src_tokens"].dtype == torch.long
    assert batch["net_input"]["src_lengths"].tolist() == [4, 2]
    assert batch["target"].tolist() == [1, 0] and batch["id"].tolist() == [0, 1]
    assert (batch["nsentences"], batch["ntokens"]) == (2, 6)
    assert dataset.collater([]) == {}


def test_cutting_and_the_first_token():
    """<CLS> counts, and the end is cut off, </s> included, as published."""
    dataset = ClassifiedTextDataset([TEXT], np.zeros(3), PAD, longest=3)
    assert dataset[0]["source"][0].tolist() == [5, 6, 7] and dataset.cut == 1
    dataset = ClassifiedTextDataset([TEXT], np.zeros(3), PAD, longest=3, first=99)
    assert [dataset[i]["source"][0].tolist() for i in range(3)] == [[99, 5, 6], [99, 8, EOS], [99, 9, 10]]
    assert dataset.cut == 2 and dataset.sizes.tolist() == [3, 3, 3]


def test_pairs():
    dataset = ClassifiedTextDataset([TEXT, Lines([3, EOS], [4, 4, 4, EOS], [EOS])], np.zeros(3), PAD, longest=3)
    batch = dataset.collater([dataset[1], dataset[2]])
    assert batch["net_input"]["src_tokens"].tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert batch["net_input"]["src1_tokens"].tolist() == [[4, 4, 4], [EOS, PAD, PAD]]
    assert batch["net_input"]["src1_lengths"].tolist() == [3, 1]
    assert dataset.sizes.tolist() == [5, 5, 4] and batch["ntokens"] == 9


@pytest.mark.parametrize("count", [1, 7, 8, 50])
@pytest.mark.parametrize("limits", [{"max_sentences": 8}, {"max_tokens": 20}, {"max_tokens": 40, "max_sentences": 3}])
def test_no_example_is_dropped(count, limits):
    order = shuffled(count, 3)
    dataset = NumberSequenceDataset(np.zeros((count, 5), np.uint8), np.zeros(count), (0.5, 0.5), order)
    batches = dataset.batch_by_size(dataset.ordered_indices(), required_batch_size_multiple=8, **limits)
    assert [int(i) for batch in batches for i in batch] == order.tolist()
    assert sorted(order.tolist()) == list(range(count))


def test_shuffling_is_numpys_seeded_permutation():
    """The permutation is that of the published code, so that its batches are repeated."""
    assert shuffled(5, 42).tolist() == [1, 4, 2, 0, 3]
    assert shuffled(100, 1).tolist() == shuffled(100, 1).tolist() != shuffled(100, 2).tolist()


def test_pixels_are_normalised():
    pixels = np.array([[0, 51, 255], [102, 153, 204]], dtype=np.uint8)
    dataset = NumberSequenceDataset(pixels, np.array([4, 2]), (0.48, 0.24))
    batch = dataset.collater([dataset[1], dataset[0]])
    want = (torch.tensor([[0.4, 0.6, 0.8], [0.0, 0.2, 1.0]]) - 0.48) / 0.24
    torch.testing.assert_close(batch["net_input"]["src_tokens"], want)
    assert batch["target"].tolist() == [2, 4] and batch["net_input"]["src_lengths"].tolist() == [3, 3]
    samples = np.array([[0.5, -0.25]], dtype=np.float32)
    dataset = NumberSequenceDataset(samples, np.array([0]))
    assert dataset.collater([dataset[0]])["net_input"]["src_tokens"].tolist() == samples.tolist()
    with pytest.raises(ValueError, match="1 sequences, but 2 labels"):
        NumberSequenceDataset(samples, np.zeros(2))


def test_normalization_is_checked():
    assert check_normalization("--x", [0.48, 0.24]) == (0.48, 0.24)
    for wrong in ([0.5], [0.5, 0.0], [0.5, -1], [1, 2, 3]):
        with pytest.raises(ValueError, match="--x .*: give a mean and a standard deviation above 0"):
            check_normalization("--x", wrong)


def test_classes_are_ranks():
    labels = dictionary(3)  # w0, w1, w2 are 4, 5, 6
    assert read_classes(Lines([6, EOS], [4, EOS], [5]), labels, "x").tolist() == [2, 0, 1]
    with pytest.raises(ValueError, match="x line 2 holds 2 labels"):
        read_classes(Lines([4, EOS], [4, 5, EOS]), labels, "x")
    with pytest.raises(ValueError, match="x line 1 holds 0 labels"):
        read_classes(Lines([EOS]), labels, "x")
    with pytest.raises(ValueError, match="x line 1: the label is not in the label dictionary"):
        read_classes(Lines([labels.unk(), EOS]), labels, "x")


def test_labels_out_of_range():
    check_labels(np.array([0, 1]), 2, "y")
    check_labels(np.array([0, 99]), None, "y")
    remedy = r"classes are 0 to 1 \(--sentence-class-num 2\): a training on these labels requires .*num 8"
    with pytest.raises(ValueError, match=rf"y line 3: class 2 does not exist, {remedy}"):
        check_labels(np.array([0, 1, 2, 7]), 2, "y")
    with pytest.raises(ValueError, match="y item 1: class -1 does not exist"):
        check_labels(np.array([0, -1]), 2, "y", first=0)


@pytest.mark.parametrize("labels, told", [([1, 1, 1], True), ([0, 0, 1], False), ([1], False)])
def test_labels_that_are_all_the_same_are_told(labels, told, caplog):
    check_labels(np.array(labels), 2, "y")
    assert caplog.messages == ["y: all 3 examples have class 1, so any accuracy means little"] * told
