"""Base of datasets whose items have lengths, with the interface that fairseq requires."""

import numpy as np
from fairseq.data import FairseqDataset


class SizedDataset(FairseqDataset):
    """Dataset whose subclasses set ``sizes`` (n,), the length of each item."""

    sizes: np.ndarray

    def num_tokens(self, index: int) -> int:
        """Return the length of an item."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Return the lengths of items."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """Return the length of an item."""
        return int(self.sizes[index])
