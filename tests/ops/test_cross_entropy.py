"""The cross entropy's kernel against float64: both losses and the gradient, for any logits."""

import pytest
import torch
import torch.nn.functional as F

from fairseq_mega.ops.common import native
from fairseq_mega.ops.cross_entropy import cross_entropy
from tests.support.numerics import GRADIENT_FACTOR, assert_close

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")
SHAPES = [(1, 2), (3, 7), (5, 16), (2, 33), (40, 1000), (0, 5), (700, 3)]


def given(rows, symbols, dtype=torch.float32, scale=3.0):
    generator = torch.Generator().manual_seed(rows + symbols)
    logits = scale * torch.randn(rows, symbols, generator=generator)
    return logits.to(dtype), torch.randint(symbols, (rows,), generator=generator)


def literal(logits, target):
    log_p = logits - logits.logsumexp(1, keepdim=True)
    return -log_p.gather(1, target[:, None])[:, 0], -log_p.sum(1)


def losses_and_gradient(function, logits, target, **options):
    """Compute the losses and the gradient of their sum, with a weight for each row and loss."""
    logits = logits.detach().requires_grad_()
    nll, smooth = function(logits, target, **options)
    weights = torch.linspace(0.5, 2.0, max(2 * len(target), 1)).to(nll.dtype)[: 2 * len(target)].view(2, -1)
    (gradient,) = torch.autograd.grad((weights[0] * nll + 0.01 * weights[1] * smooth).sum(), logits)
    return nll.detach(), smooth.detach(), gradient


def compare(logits, target):
    want = losses_and_gradient(literal, logits.double(), target)
    baseline = losses_and_gradient(cross_entropy, logits, target, path="reference")
    got = losses_and_gradient(cross_entropy, logits, target, path="native")
    assert got[0].dtype == got[1].dtype == torch.float32 and got[2].dtype == logits.dtype
    assert_close("nll", got[0], want[0], baseline[0])
    assert_close("smooth", got[1], want[1], baseline[1])
    assert_close("gradient", got[2], want[2], baseline[2], GRADIENT_FACTOR)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.usefixtures("cpu_level")
def test_equals_its_formula(shape, dtype):
    rows, symbols = shape
    compare(*given(rows, symbols, dtype))


def test_rows_may_lie_apart():
    logits, target = given(12, 40)
    for part, some in ((logits[:, 3:30], target % 27), (logits[::3], target[::3]), (logits[:, ::2], target % 20)):
        compare(part, some)
    compare(logits.t(), torch.arange(40) % 12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("offset", [1e3, 1e5, -1e7])
def test_logits_that_lie_together_far_away(offset, dtype):
    """Only their differences count, which are exact."""
    _, target = given(6, 5000)
    step = 2.0 ** (torch.tensor(abs(offset)).log2().floor() - (7 if dtype == torch.bfloat16 else 23))
    logits = (offset // step + torch.arange(6 * 5000).view(6, 5000) % 7) * step
    assert torch.equal(logits.to(dtype).float(), logits) and step > 0
    compare(logits.to(dtype), target)


@pytest.mark.parametrize("path", ["native", "reference"])
@pytest.mark.parametrize("ignored", [-100, 3, 50])
def test_ignored_targets_may_be_any_number(ignored, path):
    logits, target = given(6, 50)
    target[target == ignored] = 4
    target[[1, 4]] = ignored
    logits.requires_grad_()
    nll, smooth = cross_entropy(logits, target.int(), ignore_index=ignored, path=path)
    assert not nll[[1, 4]].any() and not smooth[[1, 4]].any()
    torch.testing.assert_close(nll, F.cross_entropy(logits, target, ignore_index=ignored, reduction="none"))
    (gradient,) = torch.autograd.grad((nll + smooth).sum(), logits)
    assert gradient.any(1).tolist() == [True, False, True, True, False, True]


@pytest.mark.parametrize("scale", [100.0, 1e4, 1e30])
def test_large_logits(scale):
    logits, target = given(6, 50, scale=scale)
    got = losses_and_gradient(cross_entropy, logits, target, path="native")
    want = losses_and_gradient(literal, logits.double(), target)
    for one, other in zip(got, want):
        torch.testing.assert_close(one.double(), other, rtol=1e-5, atol=1e-5)


def test_infinite_and_missing_numbers():
    logits, target = given(4, 40)
    target[:] = 3
    logits[0, 5] = -torch.inf  # a token that is ruled out
    logits[1] = -torch.inf
    logits[2, 39] = torch.nan
    logits[3, 7] = torch.inf
    logits.requires_grad_()
    nll, smooth = cross_entropy(logits, target, path="native")
    torch.testing.assert_close(nll[0], F.cross_entropy(logits[0], target[0]))
    assert smooth[0] == torch.inf
    assert nll[1:].isnan().all()
    (gradient,) = torch.autograd.grad(nll[0], logits)
    assert gradient[0, 5] == 0 and gradient[0].isfinite().all() and not gradient[1:].any()


def test_rows_that_nobody_scores_have_no_gradient():
    logits, target = given(6, 30)
    logits[2] = torch.nan
    logits.requires_grad_()
    padding = torch.tensor([False, True, True, False, False, True])
    nll, smooth = (rows.masked_fill(padding, 0.0) for rows in cross_entropy(logits, target, path="native"))
    (nll + smooth).sum().backward()
    assert not logits.grad[padding].any() and logits.grad[~padding].all()


@pytest.mark.parametrize("wrong", [-1, 8, 1 << 40])
def test_a_target_that_is_no_symbol(wrong):
    logits, target = given(5, 8)
    target[3] = wrong
    with pytest.raises(RuntimeError, match=f"target {wrong} is none of the 8 symbols"):
        cross_entropy(logits, target, path="native")
