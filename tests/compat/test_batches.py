"""Batches of fairseq: every sample in one, drawn again in each epoch."""

import numpy as np
import pytest
from fairseq.data import FairseqDataset, data_utils
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support import helpers


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

    def test_indices_of_any_kind(self) -> None:
        batches = data_utils.batch_by_size(iter(range(9)), lambda i: 1, [1] * 9, None, 8, 8)
        assert [len(batch) for batch in batches] == [8, 1]

    def test_no_indices_make_no_batches(self) -> None:
        assert data_utils.batch_by_size(np.arange(0), lambda i: 1, None, 100, None, 8) == []

    @pytest.mark.parametrize("limit", [["--max-tokens", "500"], ["--batch-size", "32"]])
    def test_generate_translates_461_of_461(self, tiny_model, device_flags, limit) -> None:
        beam = ["--beam", "2", "--max-len-b", "5", "--gen-subset", "test"]
        output = helpers.run_fairseq(
            "generate", [tiny_model.data, "--path", tiny_model.checkpoint, *device_flags, *limit, *beam]
        )
        assert sorted(helpers.hypotheses(output)) == list(range(461))
        assert "Translated 461 sentences" in output


def test_batches_are_drawn_again_in_each_epoch() -> None:
    assert FairseqDataset().can_reuse_epoch_itr_across_epochs is False
