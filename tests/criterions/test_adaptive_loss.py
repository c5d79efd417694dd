"""fairseq's adaptive_loss learns every word, also the second one of each rarer band."""

from argparse import Namespace

import pytest
import torch
from fairseq.criterions.adaptive_loss import AdaptiveLoss

from tests.support.tiny_lm import ADAPTIVE, build, task, tokens

PAD = 1


@pytest.fixture
def model():
    return build(**ADAPTIVE).eval()


def criterion(sentence_avg=False):
    plain = task()
    plain.cfg = Namespace()
    return AdaptiveLoss(plain, sentence_avg)


def sample(rows):
    target = torch.tensor(rows)
    return {"net_input": {"src_tokens": tokens(*target.shape)}, "target": target}


def literal(model, batch):
    """-log p of every target, 0 for padding."""
    features, _ = model(**batch["net_input"])
    found = model.decoder.adaptive_softmax.get_log_prob(features, None)
    target = batch["target"]
    return -found.gather(-1, target.unsqueeze(-1)).squeeze(-1).masked_fill(target == PAD, 0.0)


def test_every_word_counts(model):
    """The bands begin at 0, 6 and 13: words 7 and 14 have the number of the padding token in theirs."""
    batch = sample([[7, 14, 5, 23, 2, 1], [14, 14, 6, 13, 4, 0], [3, 8, 7, 1, 1, 1]])
    loss, size, logged = criterion()(model, batch)
    want = literal(model, batch)
    torch.testing.assert_close(loss, want.sum())
    assert size == logged["ntokens"] == logged["sample_size"] == 14 and logged["nsentences"] == 3
    apart, _, _ = criterion()(model, batch, reduce=False)
    torch.testing.assert_close(apart, want.flatten())
    assert criterion(sentence_avg=True)(model, batch)[1] == 3


@pytest.mark.parametrize("word", [7, 14])
def test_gradients_reach_the_second_word_of_a_band(model, word):
    batch = sample([[word, word]])
    loss, _, _ = criterion()(model, batch)
    assert loss.item() > 1.0
    loss.backward()
    assert model.decoder.adaptive_softmax.tail[0 if word == 7 else 1][0].weight.grad.abs().sum() > 0
