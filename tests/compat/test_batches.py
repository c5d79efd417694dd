"""Batches of fairseq: every sample in one, drawn again in each epoch."""

from typing import List

import numpy as np
import pytest
from fairseq.data import FairseqDataset, ListDataset, data_utils
from fairseq.data.iterators import EpochBatchIterator
from hypothesis import given, settings
from hypothesis import strategies as st


class TestLastBatch:
    @settings(deadline=None, max_examples=200)
    @given(
        sizes=st.lists(st.integers(1, 30), max_size=120),
        max_tokens=st.one_of(st.none(), st.integers(30, 400)),
        max_sentences=st.one_of(st.none(), st.integers(1, 40)),
        multiple=st.sampled_from([1, 2, 3, 8, 16]),
        vectorised=st.booleans(),
    )
    def test_every_index_once_within_the_limits(self, sizes, max_tokens, max_sentences, multiple, vectorised) -> None:
        lengths = np.array(sorted(sizes), dtype=np.int64)
        indices = np.arange(len(lengths))[::-1].copy() if len(lengths) % 2 else np.arange(len(lengths))
        vector = lengths[indices] if vectorised else None
        batches = data_utils.batch_by_size(indices, lambda i: lengths[i], vector, max_tokens, max_sentences, multiple)
        assert [i for batch in batches for i in batch] == indices.tolist()
        for batch in batches:
            assert max_tokens is None or len(batch) * max(lengths[i] for i in batch) <= max_tokens
            assert max_sentences is None or len(batch) <= max_sentences

    def test_other_batches_keep_their_shape(self) -> None:
        lengths = np.arange(1, 462)
        arguments = (np.arange(461), lambda i: lengths[i], lengths, 4000, None, 8)
        whole = data_utils.batch_by_size(*arguments)
        original = data_utils.batch_by_size.__wrapped__(*arguments)
        assert [list(batch) for batch in whole[: len(original)]] == [list(batch) for batch in original]
        assert sum(map(len, whole)) == 461


def test_batches_are_drawn_again_in_each_epoch() -> None:
    assert FairseqDataset().can_reuse_epoch_itr_across_epochs is False


def iterators(samples: int, size: int, processes: int) -> List[EpochBatchIterator]:
    """Those of all processes, of batches of so many samples."""
    data = ListDataset(list(range(samples)))
    batches = [list(range(first, min(first + size, samples))) for first in range(0, samples, size)]
    return [EpochBatchIterator(data, list, batches, 1, processes, rank) for rank in range(processes)]


def read(found: List[EpochBatchIterator], steps: int) -> List[int]:
    """Examples that all processes read in so many steps of an epoch, or in the rest of it."""
    epochs = [iterator.next_epoch_itr() for iterator in found]
    batches = [next(epoch) for epoch in epochs for _ in range(steps) if epoch.has_next()]
    return [int(sample) for batch in batches for sample in batch]


@pytest.mark.parametrize("samples", [48, 28])
@pytest.mark.parametrize(("before", "steps", "now"), [(1, 6, 2), (2, 3, 1), (1, 6, 4), (4, 1, 2), (2, 2, 3), (2, 2, 2)])
def test_another_number_of_processes_reads_each_sample_once(samples: int, before: int, steps: int, now: int) -> None:
    """Up to one batch of each process, where the parts cannot be equal; 7 batches are not equal for any number."""
    first, second = iterators(samples, 4, before), iterators(samples, 4, now)
    seen = read(first, steps)
    for iterator in second:
        iterator.load_state_dict(first[0].state_dict())
    seen += read(second, samples)
    exact = steps * before % now == 0
    assert set(seen) == set(range(samples))
    assert len(seen) == samples if exact else samples < len(seen) < samples + 4 * now


@pytest.mark.parametrize(("size", "place"), [(8, 3), (3, 8), (48, 0)])
def test_other_batches_go_on_at_the_same_place(size: int, place: int) -> None:
    (first,), (second,) = iterators(48, 4, 1), iterators(48, size, 1)
    read([first], 6)
    second.load_state_dict(first.state_dict())
    assert (second.epoch, second.iterations_in_epoch) == (1, place)


@pytest.mark.parametrize(("seed", "steps", "warned"), [(2, 6, True), (1, 6, False), (2, 0, True)])
def test_another_seed_is_named(caplog: pytest.LogCaptureFixture, seed: int, steps: int, warned: bool) -> None:
    (first,) = iterators(48, 4, 1)
    read([first], steps)
    second = EpochBatchIterator(first.dataset, list, first.batch_sampler, seed)
    with caplog.at_level("WARNING", "fairseq_mega.compat.processes.batches"):
        second.load_state_dict(first.state_dict())
    assert ("--seed" in caplog.text) == warned
