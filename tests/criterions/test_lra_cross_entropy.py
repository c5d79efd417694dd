"""Cross entropy of classifiers: classes, and weights of several."""

import pytest
import torch

from fairseq_mega.criterions.lra_cross_entropy import LRACrossEntropyCriterion

LOGITS = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.5, 3.0]])


def score(target, **options):
    sample = {"net_input": {"logits": LOGITS}, "target": target, "ntokens": 2}
    return LRACrossEntropyCriterion(None)(lambda logits: logits, sample, **options)


def test_weighted_classes():
    weights = torch.tensor([[0.7, 0.2, 0.1], [0.45, 0.55, 0.0]])
    want = -(weights.double() * LOGITS.double().log_softmax(-1)).sum(-1)
    loss, examples, logged = score(weights)
    assert loss.item() == pytest.approx(want.sum().item(), rel=1e-6)
    assert examples == logged["sample_size"] == logged["nsentences"] == 2
    assert logged["ncorrect"] == 1  # class 0 is the heavier one of the first; 2 is predicted for the second, 1 is meant
    torch.testing.assert_close(score(weights, reduce=False)[0].double(), want, rtol=1e-6, atol=0)


def test_classes():
    classes = torch.tensor([0, 1])
    want = -LOGITS.log_softmax(1)[torch.arange(2), classes]
    torch.testing.assert_close(score(classes, reduce=False)[0], want)
    loss, examples, logged = score(classes)
    torch.testing.assert_close(loss, want.sum())
    assert examples == logged["nsentences"] == logged["ntokens"] == 2 and logged["ncorrect"] == 1
