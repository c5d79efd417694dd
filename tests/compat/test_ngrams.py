"""--no-repeat-ngram-size on a CPU."""

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

import fairseq_mega  # noqa: F401


@pytest.mark.parametrize(
    ("size", "banned"),
    [(2, {6, 7}), (3, {7}), (4, set())],
)
def test_words_that_would_repeat_what_was_generated(size: int, banned: set) -> None:
    """After 5 6 4 5 7 4 5, in a room for ten words, of two hypotheses of which the other repeats nothing."""
    tokens = torch.ones(2, 11, dtype=torch.long)  # padding
    tokens[0, :8] = torch.tensor([2, 5, 6, 4, 5, 7, 4, 5])
    tokens[1, :8] = torch.tensor([2, 10, 11, 12, 13, 14, 15, 16])
    scores = NGramRepeatBlock(size, use_extension=False)(tokens, torch.zeros(2, 20), 2, 1, step=7)
    assert set(torch.nonzero(scores[0] == -torch.inf).flatten().tolist()) == banned
    assert torch.isfinite(scores[1]).all()


def test_no_word_stands_twice() -> None:
    """Every word that stands there is banned with size 1; the end of the sentence is not."""
    tokens = torch.ones(2, 6, dtype=torch.long)
    tokens[:, :4] = torch.tensor([[2, 5, 6, 7], [2, 8, 9, 10]])
    scores = NGramRepeatBlock(1, use_extension=False)(tokens, torch.zeros(2, 12), 2, 1, step=3)
    banned = [set(torch.nonzero(row == -torch.inf).flatten().tolist()) for row in scores]
    assert banned == [{5, 6, 7}, {8, 9, 10}]
