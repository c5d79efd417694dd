"""--no-repeat-ngram-size on a CPU."""

from pathlib import Path
from typing import Any, List

import pytest
import torch
from fairseq.ngram_repeat_block import NGramRepeatBlock

from fairseq_mega.models.mega import MegaModel


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


@pytest.mark.parametrize("size", [1, 2])
def test_a_prefix_may_repeat_itself(size: int, tiny_corpus: Path, tiny_model: Any, device_flags: List[str]) -> None:
    """The words after it repeat nothing."""
    hub = MegaModel.from_pretrained(str(tiny_model.checkpoint.parent), tiny_model.checkpoint.name, str(tiny_corpus))
    prefix = torch.tensor([[5, 6, 5, 6, 5, 6], [7, 8, 9, 10, 11, 12], [7, 1, 1, 1, 1, 1]])
    generator = hub.task.build_generator(hub.models, hub.cfg.generation)
    generator.repeat_ngram_blocker, generator.beam_size = NGramRepeatBlock(size, use_extension=False), 2
    source = torch.tensor([[5, 6, 7, 2]]).expand(3, -1)
    sample = {"id": torch.arange(3), "net_input": {"src_tokens": source, "src_lengths": torch.tensor([4, 4, 4])}}
    found = generator.generate(hub.models, sample, prefix_tokens=prefix)
    for row, hypotheses in zip(prefix.tolist(), found):
        given = [token for token in row if token != 1]
        for hypothesis in hypotheses:
            tokens = hypothesis["tokens"].tolist()
            assert tokens[: len(given)] == given and hypothesis["score"] > -torch.inf
            pieces = [tuple(tokens[end - size : end]) for end in range(size, len(tokens))]
            later = pieces[len(given) - size + 1 :]
            assert len(set(later)) == len(later) and not set(later) & set(pieces[: len(given) - size + 1])
