"""Values prepared for the steps of a stream are kept while they are right and made anew when parameters change."""

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

from fairseq_mega.modules.parameter_cache import ParameterCache
from fairseq_mega.modules.relative_bias import RotaryRelativeBias
from tests.modules.test_layer_contract import layer, stream
from tests.support.layers import run


class Doubling(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.computed = 0

    def forward(self, prepared):
        return prepared.get(self, "twice", self.compute)

    def compute(self):
        self.computed += 1
        return 2 * self.weight


def test_prepared_values_are_kept_until_parameters_change():
    module, prepared = Doubling().eval(), ParameterCache()
    with torch.no_grad():
        assert module(prepared) is module(prepared) and module.computed == 1
        module.weight.add_(1)
        assert module(prepared).tolist() == [4, 4]
        module.load_state_dict({"weight": torch.tensor([5.0, 5.0])})
        assert module(prepared).tolist() == [10, 10]
        assert module.double()(prepared).dtype == torch.float64
        module.weight = nn.Parameter(torch.zeros(2))
        assert module(prepared).tolist() == [0, 0]
        module.train()
        module.weight.data.fill_(3)  # as fairseq's optimisers do
        assert module(prepared).tolist() == [6, 6] and module(prepared) is not module(prepared)
        assert module.eval()(prepared).tolist() == [6, 6]
        assert copy.deepcopy(prepared)._values == {} and prepared._values != {}
    assert module(prepared).requires_grad


def test_rotary_bias_of_a_step_is_part_of_one_table():
    torch.manual_seed(0)
    bias, prepared = RotaryRelativeBias(6).eval(), ParameterCache()
    for queries, keys, offset in ((1, 1, 0), (1, 9, 8), (3, 40, 37), (5, 5, 0), (1, 4097, 4096), (4, 9, 0)):
        want = bias(queries, keys, offset, prepared)
        with torch.no_grad():
            torch.testing.assert_close(bias(queries, keys, offset, prepared), want, atol=1e-7, rtol=0)


class Summing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(2, 2), nn.BatchNorm1d(2)
        self.other: nn.Module = nn.Identity()
        self.computed = 0

    def compute(self):
        self.computed += 1
        return self.linear.weight.sum()


def test_values_of_all_modules_are_kept_until_one_of_their_tensors_changes():
    """Parameters and buffers of modules within it are written to, exchanged, and modules are, too."""
    module, prepared = Summing().eval(), ParameterCache()

    def changes():
        before = module.computed
        results = [prepared.get_of_all(module, "sum", module.compute) for _ in range(3)]
        torch.testing.assert_close(results[-1], module.linear.weight.sum())
        return module.computed - before

    with torch.no_grad():
        assert changes() == 1 and changes() == 0
        module.linear.weight.add_(1)
        assert changes() == 1
        module.norm.get_buffer("running_mean").add_(1)
        assert changes() == 1
        module.linear.weight = nn.Parameter(torch.ones(2, 2))
        assert changes() == 1
        module.linear = nn.Linear(2, 2)
        assert changes() == 1 and changes() == 0
        module.other = nn.Linear(1, 1)
        assert changes() == 1
        nn.utils.parametrizations.weight_norm(module.linear)
        assert changes() == 3
        with torch.inference_mode():
            module.linear = nn.Linear(2, 2)
        assert changes() == 3
        module.linear = nn.Linear(2, 2)
        assert changes() == 1
    assert prepared.get_of_all(module, "sum", module.compute).requires_grad


class Scaled(nn.Module):
    """``factor`` times a weight."""

    def __init__(self):
        super().__init__()
        self.factor = nn.Parameter(torch.tensor(1.0, dtype=torch.float64))

    def forward(self, weight):
        return self.factor * weight


@pytest.mark.parametrize("write", [lambda factor: factor.mul_(2.0), lambda factor: factor.data.mul_(2.0)])
def test_parametrised_weights_are_never_stale(write):
    built = layer("mega softmax rotary")
    scales = [Scaled(), Scaled()]
    parametrize.register_parametrization(built.attention.ema, "eta", scales[0])
    parametrize.register_parametrization(built.attention.relative_bias, "alpha", scales[1])
    x = torch.randn(3, 6, 8, dtype=torch.float64)
    with torch.no_grad():
        _, before = stream(built, x[:, :5], (1,) * 5)
        for scale in scales:
            write(scale.factor)
        got = run(built, x[:, 5:], before, return_state=True).hidden
    want = run(built, x[:, 5:], before, return_state=True).hidden
    assert want.requires_grad, "with gradients nothing is ever kept"
    torch.testing.assert_close(got, want)
