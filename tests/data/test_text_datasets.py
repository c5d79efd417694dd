"""Training blocks and evaluation streams over a text of lines."""

import itertools
from typing import Dict, List

import numpy as np
import pytest
import torch
from fairseq.data import Dictionary
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_mega.data.binarised_text import BinarisedText, TrainingBlockDataset
from fairseq_mega.data.streamed_segments import StreamedSegmentDataset

EOS, PAD = 2, 1


class Lines(list):
    """Stand-in for fairseq's indexed dataset: tensors and their sizes."""

    @property
    def sizes(self):
        return np.array([len(line) for line in self])


def text(lengths):
    """Lines of consecutive numbers, so that every token is known by its value."""
    ends = np.cumsum(lengths)
    return BinarisedText(Lines(torch.arange(10 + end - n, 10 + end) for n, end in zip(lengths, ends)), "test")


lines = st.lists(st.integers(0, 9), min_size=1, max_size=30).filter(lambda lengths: sum(lengths) > 0)


@given(lines, st.data())
def test_spans(lengths, data):
    source = text(lengths)
    begin = data.draw(st.integers(0, source.tokens - 1))
    end = data.draw(st.integers(begin + 1, source.tokens))
    assert source.span(begin, end).tolist() == list(range(10 + begin, 10 + end))


@given(lines, st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(1, 5))
def test_blocks_are_whole_lines_in_order(lengths, chunk, low, more, epoch):
    source = text(lengths)
    dataset = TrainingBlockDataset(source, Dictionary(), chunk, low, low + more, seed=3)
    dataset.set_epoch(epoch)
    targets = [dataset[i]["target"].tolist() for i in range(len(dataset))]
    assert list(itertools.chain(*targets)) == list(range(10, 10 + source.tokens))
    ends = set((10 + np.cumsum(lengths)).tolist())
    for i, target in enumerate(targets):
        assert target[-1] + 1 in ends
        assert dataset[i]["source"].tolist() == [EOS, *target[:-1]]
        assert len(target) == dataset.size(i) == dataset.num_tokens(i) == dataset.num_tokens_vec(np.array([i]))[0]
        assert len(target) <= chunk * (low + more) or not any(target[0] < end <= target[-1] for end in ends)
    assert sorted(dataset.ordered_indices()) == list(range(len(dataset)))


def test_blocks_are_drawn_anew_and_again():
    def cuts(seed, epoch):
        dataset = TrainingBlockDataset(text([3] * 400), Dictionary(), 4, 2, 6, seed)
        dataset.set_epoch(epoch)
        return dataset.sizes.tolist()

    assert cuts(1, 2) == cuts(1, 2)
    assert cuts(1, 1) != cuts(1, 2) and cuts(1, 1) != cuts(2, 1)
    sizes = cuts(1, 1)[:-1]
    assert {size // 3 * 3 for size in sizes} == {6, 12, 15, 18, 24}  # whole lines of 3 in 8, 12, 16, 20, 24
    counts = [sizes.count(size) for size in (6, 12, 15, 18, 24)]
    assert min(counts) > 0.5 * max(counts)  # uniform


def test_a_line_longer_than_a_block_may_be_is_cut():
    dataset = TrainingBlockDataset(text([3, 17, 4, 8]), Dictionary(), 4, 1, 2, 1, 8)
    assert dataset.sizes.tolist() == [3, 8, 8, 1, 4, 8]
    assert list(itertools.chain(*(dataset[i]["target"].tolist() for i in range(6)))) == list(range(10, 42))


def read_streams(dataset, max_tokens, max_sentences, shards=1):
    """Follow the batches of each shard; returns the targets of each segment, in the order of reading."""
    found: Dict[int, List[int]] = {}
    batches = dataset.batches(max_tokens, max_sentences, shards)
    assert len(batches) % shards == 0
    for shard in range(shards):
        before: List[int] = []
        end = 0
        for batch in batches[shard::shards]:
            if not batch:
                continue
            sample = dataset.collater([dataset[i] for i in batch])
            streams, position = sample["net_input"]["streams"], sample["net_input"]["position"]
            if position > 0:
                assert position == end and set(streams) <= set(before)
            before, end = streams, position + sample["target"].size(1)
            for row, stream in enumerate(streams):
                target = sample["target"][row][sample["target"][row] != PAD].tolist()
                source = sample["net_input"]["src_tokens"][row][: len(target)].tolist()
                assert source == [EOS if position == 0 else target[0] - 1, *target[:-1]]
                found.setdefault(stream, []).extend(target)
            assert sample["ntokens"] == sum(len(dataset[i]["target"]) for i in batch)
    return found


@settings(max_examples=200)
@given(lines, st.integers(1, 6), st.integers(1, 9), st.integers(1, 30), st.integers(1, 4), st.integers(1, 3))
def test_streams_hold_every_token_once(lengths, count, group, max_tokens, max_sentences, shards):
    source = text(lengths)
    dataset = StreamedSegmentDataset(source, Dictionary(), count, group)
    longest = -(-source.tokens // count)
    ends = set((10 + np.cumsum(lengths)).tolist())
    found = read_streams(dataset, max_tokens, max_sentences, shards)
    assert sorted(found) == list(range(len(dataset.segments)))
    assert list(itertools.chain(*(found[stream] for stream in sorted(found)))) == list(range(10, 10 + source.tokens))
    for target in found.values():
        assert target[-1] + 1 in ends
        assert len(target) <= longest or not any(target[0] < end <= target[-1] for end in ends)


@pytest.mark.parametrize("exact", [1, 7, 20, 50])
def test_exact_segments_begin_anywhere_with_the_token_before(exact):
    dataset = StreamedSegmentDataset(text([4, 9, 1, 17]), Dictionary(), 1, 5, exact)
    items = [dataset[index] for index in dataset.ordered_indices()]
    assert torch.cat([item["target"] for item in items]).tolist() == list(range(10, 41))
    assert torch.cat([item["source"] for item in items]).tolist() == [EOS, *range(10, 40)]
    beginnings = [item["target"][0].item() - 10 for item in items if item["position"] == 0]
    assert beginnings == list(range(0, 31, exact))
    assert all(item["stream"] == (item["target"][0].item() - 10) // exact for item in items)


def test_segments_of_a_size_are_whole_lines_up_to_it():
    dataset = StreamedSegmentDataset(text([4, 9, 1, 17, 2, 2]), Dictionary(), None, 5, longest=14)
    assert dataset.segments.tolist() == [[0, 14], [14, 31], [31, 35]]  # a longer line is a segment of its own


def test_streams_side_by_side():
    dataset = StreamedSegmentDataset(text([4] * 30), Dictionary(), 6, 5)  # six segments of 20 tokens
    assert len(dataset.segments) == 6
    assert [len(batch) for batch in dataset.batches(15, None)] == [3] * 8
    assert [len(batch) for batch in dataset.batches(15, 2)] == [2] * 12
    assert [len(batch) for batch in dataset.batches(1, None)] == [1] * 24
    assert [len(batch) for batch in dataset.batches(1000, None)] == [6] * 4
    assert [len(batch) for batch in dataset.batches(1000, None, 2)] == [3] * 8
    assert [len(batch) for batch in dataset.batches(1000, None, 4)] == [2, 2, 2, 0] * 4
