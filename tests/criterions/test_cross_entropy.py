"""fairseq's cross entropies by the kernel: its own losses and gradients, and its own way where it has one."""

import pytest
import torch
from fairseq.criterions.cross_entropy import CrossEntropyCriterion
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.models import FairseqDecoder

from fairseq_mega.criterions import cross_entropy as module
from fairseq_mega.ops.common import native
from tests.support.tiny_lm import ADAPTIVE, build, task, tokens

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
PAD = 1


@pytest.fixture
def calls(monkeypatch):
    """Shapes of the logits of each call of the kernel."""
    found = []

    def count(logits, target, **options):
        found.append(logits.shape)
        return original(logits, target, **options)

    original = module.cross_entropy
    monkeypatch.setattr(module, "cross_entropy", count)
    return found


def sample():
    target = torch.tensor([[7, 4, 5, 23, 2, PAD], [14, 14, 6, 13, 4, 2], [3, 8, PAD, PAD, PAD, PAD]])
    return {"net_input": {"src_tokens": tokens(*target.shape)}, "target": target, "ntokens": 13}


def loss_and_gradients(criterion, model, reduce=True):
    model.zero_grad()
    loss, _, logged = criterion(model, sample(), reduce=reduce)
    loss.sum().backward()
    return loss.detach(), logged, {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


def smoothed(**options):
    return LabelSmoothedCrossEntropyCriterion(task(), False, label_smoothing=0.1, **options)


@pytest.mark.parametrize("reduce", [False, True])
@pytest.mark.parametrize("make", [smoothed, lambda: CrossEntropyCriterion(task(), False)])
def test_losses_are_fairseqs(calls, make, reduce, monkeypatch):
    model = build().eval()
    loss, logged, gradients = loss_and_gradients(make(), model, reduce)
    assert calls == [(18, 24)]
    monkeypatch.setenv("FAIRSEQ_MEGA_PATHS", "cross_entropy=reference")
    want, wanted, expected = loss_and_gradients(make(), model, reduce)
    assert len(calls) == 1 and loss.shape == want.shape
    torch.testing.assert_close(loss, want)
    assert logged.keys() == wanted.keys()
    torch.testing.assert_close(logged.get("nll_loss", loss), wanted.get("nll_loss", want))
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-6)


def test_other_probabilities_are_left_to_fairseq(calls):
    adaptive = build(**ADAPTIVE).eval()
    CrossEntropyCriterion(task(), False)(adaptive, sample())
    model = build().eval()
    smoothed(ignore_prefix_size=2)(model, sample())

    def sharper(self, output, log_probs, sample=None):
        return FairseqDecoder.get_normalized_probs(self, (3 * output[0],), log_probs, sample)

    model.decoder.__class__ = type("Sharp", (type(model.decoder),), {"get_normalized_probs": sharper})
    loss_and_gradients(smoothed(), model)

    class Sharp(LabelSmoothedCrossEntropyCriterion):
        def get_lprobs_and_target(self, model, output, sample):
            log_p = model.get_normalized_probs((3 * output[0],), log_probs=True)
            return log_p.flatten(0, 1), model.get_targets(sample, output).flatten()

    loss_and_gradients(Sharp(task(), False, label_smoothing=0.1), build().eval())
    assert calls == []


def test_half_precision(calls):
    """Logits of bfloat16, as under autocast: losses in float32."""
    model = build().eval()
    with torch.autocast("cpu", torch.bfloat16):
        loss, _, _ = loss_and_gradients(smoothed(), model)
    assert loss.dtype == torch.float32 and len(calls) == 1
    want = loss_and_gradients(smoothed(), model)[0]
    torch.testing.assert_close(loss, want, rtol=0.01, atol=0.0)
