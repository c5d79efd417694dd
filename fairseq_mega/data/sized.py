"""The interface that fairseq expects of datasets whose items have lengths."""

import numpy as np
from fairseq.data import FairseqDataset


class SizedDataset(FairseqDataset):
    """A dataset whose subclasses set ``sizes`` (n,), the length of each item."""

    sizes: np.ndarray

    def num_tokens(self, index: int) -> int:
        """Length of an item."""
        return int(self.sizes[index])

    def num_tokens_vec(self, indices: np.ndarray) -> np.ndarray:
        """Lengths of items."""
        return self.sizes[indices]

    def size(self, index: int) -> int:
        """Length of an item."""
        return int(self.sizes[index])
