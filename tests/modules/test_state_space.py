"""The diagonal state space against the paper's formulas as a loop in float64, with all gradients; a layer of it."""

import math
from typing import List

import pytest
import torch

from fairseq_mega.modules.state_space import DiagonalStateSpace, SlowParameter, frequencies
from tests.support.numerics import assert_close, gradients

LENGTHS = (1, 2, 31, 64)


def plain(system, x):
    """The system of (D,) features over x (B, L, D), step by step, from the definition of the zero-order hold."""
    modes = torch.complex(-system.log_decay().exp(), system.frequency())  # A (D, M)
    turned = torch.exp(modes * system.log_step().exp())
    held = (turned - 1) / modes
    projection = torch.view_as_complex(system.projection)
    width, length = x.size(-1), x.size(1)
    y = x * system.omega
    for direction in range(1 + system.bidirectional):
        c = projection[direction * width : (direction + 1) * width]
        state = torch.zeros(x.size(0), *modes.shape, dtype=modes.dtype)
        outputs: List[torch.Tensor] = []
        for t in range(length) if direction == 0 else range(length - 1, -1, -1):
            if direction == 1:  # the present position is the other direction's
                outputs.insert(0, 2 * (c * state).sum(-1).real)
            state = turned * state + held * x[:, t].unsqueeze(-1)
            if direction == 0:
                outputs.append(2 * (c * state).sum(-1).real)
        y = y + torch.stack(outputs, dim=1)
    return y


def system_of(**options):
    torch.manual_seed(3)
    system = DiagonalStateSpace(5, 12, **options)
    with torch.no_grad():
        for name, parameter in system.named_parameters():
            if name.endswith("change"):
                parameter.normal_(std=0.5)
    return system


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("initialization", ["lin", "inv"])
def test_equals_the_formulas(length, bidirectional, initialization):
    exact = system_of(bidirectional=bidirectional, initialization=initialization).double()
    x = torch.randn(2, length, 5, dtype=torch.float64, requires_grad=True)
    inputs = {"x": x, **dict(exact.named_parameters())}
    want, (got, _) = plain(exact, x), exact(x)
    assert_close("y", got, want)
    wanted = gradients(want, inputs)
    for name, gradient in gradients(got, inputs).items():
        assert_close(name, gradient, wanted[name])
    single = system_of(bidirectional=bidirectional, initialization=initialization)
    same = x.detach().float().requires_grad_()
    parameters = {"x": same, **dict(single.named_parameters())}
    fast, _ = single(same)
    assert_close("y in float32", fast, want.detach())
    for name, gradient in gradients(fast, parameters).items():
        assert_close(f"{name} in float32", gradient, wanted[name])


def test_a_small_step_loses_no_digits():
    """exp(z) - 1 of a tiny z: subtracting one from the exponential in float32 would leave four digits."""
    torch.manual_seed(0)
    system = DiagonalStateSpace(4, 8, least_step=1e-6, largest_step=2e-6)
    held = system.coefficients().projection
    wanted = system.double().coefficients().projection
    torch.testing.assert_close(held.to(torch.complex128), wanted, rtol=1e-6, atol=0)


def test_a_constant_input_settles():
    """At 2 Re(-C / A) + omega, where the derivative of the state vanishes."""
    system = system_of(least_step=0.5, largest_step=1.0).double()
    modes = torch.complex(-system.log_decay().exp(), system.frequency())
    c = torch.view_as_complex(system.projection)
    level = 2 * (-c / modes).sum(-1).real + system.omega
    y, _ = system(torch.ones(1, 2000, 5, dtype=torch.float64))
    torch.testing.assert_close(y[0, -1], level)


def test_frequencies():
    torch.testing.assert_close(frequencies("lin", 3), torch.tensor([0.0, math.pi, 2 * math.pi]).double())
    n = 6.0
    wanted = [n / math.pi * (n - 1), n / math.pi * (n / 3 - 1), n / math.pi * (n / 5 - 1)]
    torch.testing.assert_close(frequencies("inv", 3), torch.tensor(wanted, dtype=torch.float64))


def test_a_slow_parameter_is_slow_in_adam():
    plain_one = torch.nn.Parameter(torch.tensor([2.0, -1.0]))
    slow = SlowParameter((2,), 0.1, lambda start: start.copy_(plain_one.detach()))
    optimizer = torch.optim.Adam([slow.change, plain_one], lr=0.01)
    (slow().square().sum() + plain_one.square().sum()).backward()
    optimizer.step()
    moved, wanted = slow() - slow.start, (plain_one - slow.start) * 0.1
    torch.testing.assert_close(moved, wanted, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("rates, steps_move", [({}, 0.1), ({"rate": 0.5}, 0.5), ({"step_rate": 1.0}, 1.0)], ids=str)
def test_steps_have_a_rate_of_their_own(rates, steps_move):
    system = DiagonalStateSpace(3, 4, **rates)
    before = system.log_step().clone(), system.frequency().clone()
    with torch.no_grad():
        for parameter in (system.log_step.change, system.frequency.change):
            parameter.add_(1)
    torch.testing.assert_close(system.log_step() - before[0], torch.full((3, 1), steps_move))
    torch.testing.assert_close(system.frequency() - before[1], torch.full((3, 2), rates.get("rate", 0.1)))
