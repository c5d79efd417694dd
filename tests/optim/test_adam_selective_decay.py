"""Adam with weight decay for some parameters only: steps, checkpoints, float32 copies."""

import math
from types import SimpleNamespace

import pytest
import torch
from fairseq.optim import FP16Optimizer
from omegaconf import OmegaConf

from fairseq_mega.compat.features.no_weight_decay import exclude_from_weight_decay, mark_float32_copies
from fairseq_mega.optim.adam_selective_decay import SelectiveDecayAdam, SelectiveDecayAdamConfig

RATE, DECAY, BETAS, EPS = 0.1, 0.05, (0.9, 0.98), 1e-3
SHAPES = [(3, 2), (2,), (4, 1), (3,), (2, 2)]
NO_WEIGHT_DECAY = (1, 3)


def parameters(marked=NO_WEIGHT_DECAY):
    draw = torch.Generator().manual_seed(2)
    made = [torch.nn.Parameter(torch.randn(shape, generator=draw)) for shape in SHAPES]
    for index in marked:
        exclude_from_weight_decay(made[index])
    return made


def config(**options):
    values = {"lr": [RATE], "adam_betas": list(BETAS), "adam_eps": EPS, "weight_decay": DECAY, "tpu": False, **options}
    return OmegaConf.create({**vars(SelectiveDecayAdamConfig()), **values, "_name": "adam_selective_decay"})


def gradients(step):
    draw = torch.Generator().manual_seed(10 + step)
    return [torch.randn(shape, generator=draw) for shape in SHAPES]


def steps(optimizer, params, first, last):
    for step in range(first, last):
        for parameter, gradient in zip(params, gradients(step)):
            parameter.grad = gradient.clone()
        optimizer.step()


def by_hand(count):
    """Weights after some steps of AdamW in float64."""
    weights = [parameter.detach().double() for parameter in parameters()]
    means, squares = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    for n in range(1, count + 1):
        for i, gradient in enumerate(gradients(n)):
            if i not in NO_WEIGHT_DECAY:
                weights[i] = weights[i] - RATE * DECAY * weights[i]
            means[i] = BETAS[0] * means[i] + (1 - BETAS[0]) * gradient
            squares[i] = BETAS[1] * squares[i] + (1 - BETAS[1]) * gradient.double() ** 2
            rate = RATE * math.sqrt(1 - BETAS[1] ** n) / (1 - BETAS[0] ** n)
            weights[i] = weights[i] - rate * means[i] / (squares[i].sqrt() + EPS)
    return weights


def assert_close(params, want):
    for index, (got, wanted) in enumerate(zip(params, want)):
        torch.testing.assert_close(got.detach().double(), wanted, rtol=1e-5, atol=1e-6, msg=f"parameter {index}")


@pytest.mark.parametrize("old", [False, True])
def test_steps_by_hand(old):
    """Steps equal those by hand; in the first one only the decay differs between the groups."""
    for count in (1, 4):
        params = parameters()
        steps(SelectiveDecayAdam(config(use_old_adam=old), params), params, 1, 1 + count)
        assert_close(params, by_hand(count))


def test_a_checkpoint_goes_on_whatever_the_overrides():
    params = parameters()
    first = SelectiveDecayAdam(config(), params)
    steps(first, params, 1, 3)
    second = SelectiveDecayAdam(config(), params)
    second.load_state_dict(first.state_dict(), {"weight_decay": DECAY, "lr": RATE})
    steps(second, params, 3, 5)
    assert_close(params, by_hand(4))


def test_float32_copies():
    """Float32 copies of weights keep the marks."""
    params = parameters()
    copies = mark_float32_copies(FP16Optimizer.build_fp32_params, SimpleNamespace(), params, False)
    steps(SelectiveDecayAdam(config(), copies), copies, 1, 4)
    assert_close(copies, by_hand(3))


@pytest.mark.parametrize("marked", [(), NO_WEIGHT_DECAY])
def test_parameters_without_marks_are_refused(marked):
    """Neither unmarked parameters nor a tensor of joined ones has a group without weight decay."""
    params = parameters(marked)
    joined = torch.nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in params]))
    copies = mark_float32_copies(lambda *_: {0: joined}, SimpleNamespace(), params, True) if marked else {0: params[0]}
    with pytest.raises(ValueError, match="adam_selective_decay"):
        SelectiveDecayAdam(config(), list(copies.values()))
