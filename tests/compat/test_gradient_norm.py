"""The norm of all gradients and clipping by it: in float64, wherever the gradients are."""

import pytest
import torch
from fairseq import utils

import fairseq_mega  # noqa: F401 (takes the norm where the gradients are)


@pytest.fixture
def parameters(device):
    def draw(dtype=torch.float32):
        found = [
            torch.nn.Parameter(torch.zeros(size, device=device, dtype=dtype)) for size in ((40, 7), (999,), (), (0,))
        ]
        generator = torch.Generator().manual_seed(1)
        for p in found:
            p.grad = torch.randn(p.shape, generator=generator).to(p)
        return [*found, torch.nn.Parameter(torch.zeros(3, device=device))]  # the last has no gradient

    return draw


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("max_norm", [0.0, 5.0, 1e3])
def test_clips_by_the_norm_of_all(parameters, dtype, max_norm):
    params = parameters(dtype)
    before = [p.grad.double() for p in params[:-1]]
    want = torch.stack([grad.square().sum() for grad in before]).sum().sqrt()
    norm = utils.clip_grad_norm_(iter(params), max_norm)
    assert norm.dtype == torch.float32 and norm.device == params[0].device
    torch.testing.assert_close(norm.double(), want, rtol=1e-6, atol=0.0)
    factor = min(1.0, max_norm / (want.item() + 1e-6)) if max_norm > 0 else 1.0
    for p, grad in zip(params, before):
        torch.testing.assert_close(p.grad.double(), factor * grad, rtol=2 * torch.finfo(dtype).eps, atol=0.0)


def test_a_gpu_in_sight_is_left_alone(parameters, monkeypatch):
    """Gradients of --cpu stay on the CPU where there is a GPU."""
    params = [p.cpu() for p in parameters()[:-1]]
    grads = [p.grad.cpu() for p in parameters()[:-1]]
    for p, grad in zip(params, grads):
        p.grad = grad
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("asked for a GPU"))
    assert utils.clip_grad_norm_(params, 1.0).device.type == "cpu"
    torch.testing.assert_close(utils.clip_grad_norm_(params, 0.0), torch.tensor(1.0), rtol=1e-5, atol=0.0)


def test_the_norm_is_that_of_all_processes(parameters):
    assert utils.clip_grad_norm_(
        parameters(), 0.0, aggregate_norm_fn=lambda norm: 2 * norm
    ) == 2 * utils.clip_grad_norm_(parameters(), 0.0)
