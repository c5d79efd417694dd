"""A test that asks for too much memory fails as any other does, and its process goes on."""

import pytest
import torch

from tests.support import memory


@pytest.mark.skipif(torch.cuda.is_available(), reason="no limit where there is a GPU")
def test_too_much_memory_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="can't allocate memory"):
        torch.empty(memory.BYTES, dtype=torch.uint8)
