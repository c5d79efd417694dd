"""fairseq's uses of names that NumPy 2 removed."""

import numpy as np
import pytest
import torch
from fairseq.data import data_utils
from fairseq.data.token_block_dataset import TokenBlockDataset


class TestNumpyNames:
    def test_numpy_itself_is_untouched(self) -> None:
        if int(np.__version__.split(".")[0]) < 2:
            pytest.skip("NumPy 1 has these names itself")
        assert not hasattr(np, "compat") and not hasattr(np, "int")

    def test_buckets(self) -> None:
        sizes = np.array([3, 5, 5, 9, 12, 30])
        buckets = data_utils.get_buckets(sizes, 3)
        assert buckets[-1] == 30 and list(buckets) == sorted(buckets)

    def test_sentence_blocks(self) -> None:
        tokens = [torch.tensor([5, 6, 2]), torch.tensor([7, 2])]
        blocks = TokenBlockDataset(tokens, [3, 2], None, pad=1, eos=2, break_mode="eos")
        assert [block.tolist() for block in (blocks[0], blocks[1])] == [[5, 6, 2], [7, 2]]
