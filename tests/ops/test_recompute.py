"""Results that the backward pass computes again: they are not kept, and their gradients are the same."""

import contextlib
import gc
from types import SimpleNamespace

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from fairseq_mega.ops.activation import silu
from fairseq_mega.ops.common import native
from fairseq_mega.ops.common.recompute import keep_operator, recomputing
from fairseq_mega.ops.norm import row_norm

pytestmark = pytest.mark.skipif(native.PROBLEM is not None, reason=f"no compiled kernels: {native.PROBLEM}")


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1)).requires_grad_()


def test_what_is_computed_again_is_not_kept():
    x = drawn(4, 37)
    want = torch.autograd.grad(silu(x, path="reference").square().sum(), x)
    activated = silu(x, path="native")
    storage = StorageWeakRef(activated.untyped_storage())
    squares = recomputing(torch.square, activated)
    del activated
    assert storage.expired()
    torch.testing.assert_close(torch.autograd.grad(squares.sum(), x), want)


def test_a_graph_that_never_runs_backward_is_freed():
    """Its nodes must not keep their own results, as square roots and checkpointed layers would."""
    x = torch.rand(50, requires_grad=True)
    for around in (contextlib.nullcontext(), torch.autograd.graph.saved_tensors_hooks(torch.detach, torch.clone)):
        with around:
            root = recomputing(lambda t: torch.sqrt(t.exp()), silu(x, path="native"))
        storage = StorageWeakRef(root.untyped_storage())
        del root
        gc.collect()
        assert storage.expired()


def kept_bytes(run):
    """Bytes of the different memory that a computation keeps for its backward pass, and its result."""
    seen = {}

    def note(tensor):
        seen[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        out = run()
    return sum(seen.values()), out


def test_what_was_written_to_is_kept_as_it_is():
    """A hook that sets a feature to zero, which takes no part in the gradients."""
    x = drawn(4, 37)
    weight = torch.ones(37, requires_grad=True)
    found = []
    for path in ("native", "reference"):
        activated = silu(x, path=path)
        with torch.no_grad():
            activated[:, 3] = 0
        (gradient,) = torch.autograd.grad(recomputing(torch.mul, activated, weight).sum(), weight)
        found.append(gradient)
    assert found[0][3] == 0
    torch.testing.assert_close(*found)


def test_an_input_that_is_written_to_between_two_gradients():
    x = drawn(4, 37)
    factor, weight = torch.randn(4, 37), torch.ones(37, requires_grad=True)
    y = recomputing(torch.mul, silu(x, factor, path="native"), weight).sum()
    torch.autograd.grad(y, weight, retain_graph=True)
    factor.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(y, weight)


@pytest.mark.parametrize("centred", [False, True])
def test_a_product_keeps_no_norm(centred):
    x = drawn(3, 100, 8)
    layer, scale = torch.nn.Linear(8, 8), torch.randn(8, requires_grad=True)
    found = []
    for call in (lambda function, x: function(x), recomputing):
        kept, out = kept_bytes(lambda: call(layer, row_norm(x, scale, centred=centred, eps=1e-5)))  # noqa: B023
        found.append((kept, torch.autograd.grad(out.square().sum(), [x, scale, *layer.parameters()])))
    (before, wanted), (after, gained) = found
    assert after <= before - x.numel() * 4
    assert all(torch.equal(got, want) for got, want in zip(gained, wanted))


@pytest.mark.parametrize("is_cuda", [False, True])
def test_results_on_a_gpu_are_kept(is_cuda):
    """There another launch can cost more than the memory."""
    node, x = SimpleNamespace(save_for_backward=lambda *_: None), SimpleNamespace(is_cuda=is_cuda)
    keep_operator(silu)(node, (x,), None)
    assert hasattr(node, "operator") != is_cuda
