"""fairseq's Adam in one pass: its own steps in float64; the norm of all gradients, and clipping by it."""

import copy

import pytest
import torch
from fairseq import utils
from fairseq.optim import adam
from fairseq.optim.adam import Adam

import fairseq_mega  # noqa: F401 (takes the steps at once)

OPTIONS = {"lr": 0.01, "betas": (0.9, 0.98)}


@pytest.fixture
def parameters(device):
    def draw(dtype=torch.float32, seed=1):
        generator = torch.Generator().manual_seed(seed)
        sizes = [(40, 7), (1000,), (1,), (0, 3)]
        return [torch.nn.Parameter(torch.randn(size, generator=generator).to(device, dtype)) for size in sizes]

    return draw


def take_steps(optimizer, numbers, without=()):
    """Steps with gradients of their own; the parameters ``without`` one miss the second of them."""
    params = [p for group in optimizer.param_groups for p in group["params"]]
    for number in numbers:
        generator = torch.Generator().manual_seed(100 + number)
        for index, p in enumerate(params):
            grad = 10.0 ** (-number) * torch.randn(p.shape, generator=generator)
            p.grad = None if number == 1 and index in without else grad.to(p)
        optimizer.step()
    return params


@pytest.fixture
def fused(monkeypatch):
    """Numbers of parameters of each call of PyTorch's kernel."""
    calls, kernel = [], torch._fused_adamw_

    def count(params, *args, **kwargs):
        calls.append(len(params))
        return kernel(params, *args, **kwargs)

    monkeypatch.setattr(torch, "_fused_adamw_", count)
    return calls


@pytest.mark.parametrize(("eps", "decay"), [(1e-8, 0.0), (1e-8, 0.1), (0.1, 0.0)])
def test_the_steps_are_fairseqs(fused, eps, decay, parameters):
    """A large eps tells where it is added."""
    options = {**OPTIONS, "eps": eps, "weight_decay": decay}
    got = take_steps(Adam(parameters(), **options), range(5), without=(1,))
    assert fused == [4, 3, 3, 1, 3, 1, 3, 1]  # by the number of steps of a parameter
    want = take_steps(Adam(parameters(torch.float64), **options), range(5), without=(1,))
    assert len(fused) == 8
    for one, other in zip(got, want):
        torch.testing.assert_close(one.double(), other, rtol=1e-6, atol=1e-6)


def test_a_training_goes_on_where_either_way_left_it(parameters):
    """The state that is saved is fairseq's, and the one it saved is taken up."""
    whole = take_steps(Adam(parameters(), **OPTIONS), range(4))
    for first, second in ((False, True), (True, False)):
        optimizer = Adam(parameters(), amsgrad=False, **OPTIONS)
        take_steps(optimizer, range(2)) if first else by_fairseq(optimizer, range(2))
        saved = copy.deepcopy(optimizer.state_dict())
        assert all(type(state["step"]) is int and len(state) == 3 for state in saved["state"].values())
        later = Adam([torch.nn.Parameter(p.detach().clone()) for p in optimizer.param_groups[0]["params"]], **OPTIONS)
        later.load_state_dict(saved)
        params = take_steps(later, range(2, 4)) if second else by_fairseq(later, range(2, 4))
        for one, other in zip(params, whole):
            torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def by_fairseq(optimizer, numbers):
    """The same by fairseq's own function."""
    step = Adam.step
    while hasattr(step, "__wrapped__"):
        step = step.__wrapped__
    optimizer.step = lambda: step(optimizer)
    return take_steps(optimizer, numbers)


def test_a_training_goes_on_where_apex_left_it(parameters):
    """apex counts the steps of a group, not of a parameter; it is used no more."""
    assert adam.get_fused_adam_class() is None
    whole, optimizer = take_steps(Adam(parameters(), **OPTIONS), range(4)), Adam(parameters(), **OPTIONS)
    params, saved = take_steps(optimizer, range(2)), copy.deepcopy(optimizer.state_dict())
    for state in saved["state"].values():
        saved["param_groups"][0]["step"] = state.pop("step")
    later = Adam(params, **OPTIONS)
    later.load_state_dict(saved)
    assert all(torch.equal(one, other) for one, other in zip(take_steps(later, range(2, 4)), whole))


@pytest.mark.parametrize("case", ["bfloat16", "amsgrad"])
def test_other_parameters_are_left_to_fairseq(fused, case, parameters):
    params = parameters(torch.bfloat16 if case == "bfloat16" else torch.float32)
    before = [p.detach().clone() for p in params]
    take_steps(Adam(params, amsgrad=case == "amsgrad", **OPTIONS), range(2))
    assert fused == []
    assert all(not torch.equal(p, old) for p, old in zip(params[:3], before))


def test_weight_decay_is_not_rounded_away(fused):
    """Weights follow the exact decay over 2,000 steps without gradients; a step's factor is no number of float32."""
    parameter = torch.nn.Parameter(torch.linspace(0.1, 1.0, 100))
    wanted = parameter.detach().double().clone()
    optimizer = Adam([parameter], lr=1e-3, weight_decay=1e-2)
    for _ in range(2000):
        parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
        wanted *= 1 - 1e-5
    assert len(fused) == 2000
    assert abs(parameter.double() / wanted - 1).max() < 2e-5 and abs((parameter.double() / wanted - 1).mean()) < 3e-6


@pytest.fixture
def gradients(device):
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
def test_clips_by_the_norm_of_all(gradients, dtype, max_norm):
    params = gradients(dtype)
    before = [p.grad.double() for p in params[:-1]]
    want = torch.stack([grad.square().sum() for grad in before]).sum().sqrt()
    norm = utils.clip_grad_norm_(iter(params), max_norm)
    assert norm.dtype == torch.float32 and norm.device == params[0].device
    torch.testing.assert_close(norm.double(), want, rtol=1e-6, atol=0.0)
    factor = min(1.0, max_norm / (want.item() + 1e-6)) if max_norm > 0 else 1.0
    for p, grad in zip(params, before):
        torch.testing.assert_close(p.grad.double(), factor * grad, rtol=2 * torch.finfo(dtype).eps, atol=0.0)


def test_a_gpu_in_sight_is_left_alone(gradients, monkeypatch):
    """Gradients of --cpu stay on the CPU where there is a GPU."""
    params = [p.cpu() for p in gradients()[:-1]]
    grads = [p.grad.cpu() for p in gradients()[:-1]]
    for p, grad in zip(params, grads):
        p.grad = grad
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: pytest.fail("asked for a GPU"))
    assert utils.clip_grad_norm_(params, 1.0).device.type == "cpu"
    torch.testing.assert_close(utils.clip_grad_norm_(params, 0.0), torch.tensor(1.0), rtol=1e-5, atol=0.0)


def test_the_norm_is_that_of_all_processes(gradients):
    assert utils.clip_grad_norm_(
        gradients(), 0.0, aggregate_norm_fn=lambda norm: 2 * norm
    ) == 2 * utils.clip_grad_norm_(gradients(), 0.0)
