"""Datasets with a class per example: batches, cutting, orders, labels."""

import numpy as np
import pytest
import torch

from fairseq_mega.data.classified import ClassifiedTextDataset, NumberSequenceDataset, read_classes, shuffled
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
    assert dataset[0]["source"][0].tolist() == [5, 6, 7]
    dataset = ClassifiedTextDataset([TEXT], np.zeros(3), PAD, longest=3, first=99)
    assert [dataset[i]["source"][0].tolist() for i in range(3)] == [[99, 5, 6], [99, 8, EOS], [99, 9, 10]]
    assert dataset.sizes.tolist() == [3, 3, 3]


def test_pairs():
    dataset = ClassifiedTextDataset([TEXT, Lines([3, EOS], [4, 4, 4, EOS], [EOS])], np.zeros(3), PAD, longest=3)
    batch = dataset.collater([dataset[1], dataset[2]])
    assert batch["net_input"]["src_tokens"].tolist() == [[8, EOS, PAD], [9, 10, EOS]]
    assert batch["net_input"]["src1_tokens"].tolist() == [[4, 4, 4], [EOS, PAD, PAD]]
    assert batch["net_input"]["src1_lengths"].tolist() == [3, 1]
    assert dataset.sizes.tolist() == [5, 5, 4] and batch["ntokens"] == 9


def test_shuffling_is_numpys_seeded_permutation():
    """The permutation is that of the published code, so that its batches are repeated."""
    assert shuffled(5, 42).tolist() == [1, 4, 2, 0, 3]


def test_pixels_are_normalised():
    pixels = np.array([[0, 51, 255], [102, 153, 204]], dtype=np.uint8)
    dataset = NumberSequenceDataset(pixels, np.array([4, 2]), (0.48, 0.24))
    batch = dataset.collater([dataset[1], dataset[0]])
    want = (torch.tensor([[0.4, 0.6, 0.8], [0.0, 0.2, 1.0]]) - 0.48) / 0.24
    torch.testing.assert_close(batch["net_input"]["src_tokens"], want)
    assert batch["target"].tolist() == [2, 4] and batch["net_input"]["src_lengths"].tolist() == [3, 3]
    with pytest.raises(ValueError, match="2 examples and 3 labels"):
        NumberSequenceDataset(pixels, np.zeros(3))


def test_classes_are_ranks():
    labels = dictionary(3)  # w0, w1, w2 are 4, 5, 6
    assert read_classes(Lines([6, EOS], [4, EOS], [5]), labels, "x").tolist() == [2, 0, 1]
    for wrong in ([4, 5, EOS], [EOS], [labels.unk(), EOS]):
        with pytest.raises(ValueError, match="x line 2 "):
            read_classes(Lines([4, EOS], wrong), labels, "x")
