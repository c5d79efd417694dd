"""First values: a model on the meta device gets them by ``to_empty`` and ``reset_parameters`` of its modules."""

import math
from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest
import torch
from torch import Tensor, nn

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding, RealNumberEmbedding
from fairseq_mega.modules.ema import MultiDimensionalDampedEMA
from fairseq_mega.modules.embedding import token_table
from fairseq_mega.modules.linear import linear
from fairseq_mega.modules.megalodon.complex_ema import ComplexEMA
from fairseq_mega.modules.megalodon.config import INIT_MODES
from fairseq_mega.modules.megalodon.initialization import matrix
from fairseq_mega.modules.megalodon.norms import TimestepNorm
from fairseq_mega.modules.norm import NORMS, build_norm
from fairseq_mega.modules.relative_bias import RotaryRelativeBias, SimpleRelativeBias
from tests.support.every_model import MODELS, NAMES


def tensors(model: nn.Module) -> Iterator[Tuple[str, Tensor]]:
    """Yield parameters and buffers, those that are not saved too."""
    yield from model.named_parameters()
    yield from model.named_buffers()


@torch.no_grad()
def reset(model: nn.Module) -> None:
    """Draw a model on the meta device as torch's own recipes do; what nothing fills is not a number, or -99."""
    model.to_empty(device="cpu")
    for _, tensor in tensors(model):
        tensor.fill_(math.nan if tensor.is_floating_point() else -99)
    for module in model.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()  # type: ignore[operator]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_from_the_meta_device_has_the_statistics_of_another_seed(name: str) -> None:
    one, other = (MODELS[name](seed=seed) for seed in (0, 1))
    with torch.device("meta"):
        model = MODELS[name](seed=2)
    assert all(parameter.is_meta for parameter in model.parameters())
    reset(model)
    assert len(list(model.parameters())) == len(list(one.parameters())), "what is shared is shared still"
    want, again = dict(tensors(one)), dict(tensors(other))
    for key, tensor in tensors(model):
        assert tensor.dtype == want[key].dtype and not (tensor.isnan() | (tensor == -99)).any(), key
        if torch.equal(want[key], again[key]):
            torch.testing.assert_close(tensor, want[key], rtol=0, atol=0)
            continue
        if tensor.numel() < 12:
            continue
        deviation, expected = tensor.double().std(), want[key].double().std()
        assert abs(math.log(deviation / expected)) < 6 / math.sqrt(tensor.numel()), key
        assert abs(tensor.mean() - want[key].mean()) < 7 * expected / math.sqrt(tensor.numel()), key
        assert torch.equal(tensor == 0, want[key] == 0), key  # the rows of padding


MODULES: Dict[str, Callable[[], nn.Module]] = {
    "ema": lambda: MultiDimensionalDampedEMA(6, 4, bidirectional=True),
    "complex_ema": lambda: ComplexEMA(6, 4),
    "simple": lambda: SimpleRelativeBias(9),
    "rotary": lambda: RotaryRelativeBias(8),
    "linear": lambda: linear(5, 7),
    "table": lambda: token_table(9, 4, 1),
    "numbers": lambda: RealNumberEmbedding(6),
    "timestep_norm": lambda: TimestepNorm(8, 2),
    **{norm: partial(build_norm, norm, 6) for norm in NORMS},
    **{mode: partial(matrix, 5, 4, 3, mode=mode, bias=True) for mode in INIT_MODES},
}


@pytest.mark.parametrize("name", MODULES)
def test_a_reset_draws_what_the_constructor_draws(name: str) -> None:
    torch.manual_seed(5)
    want = MODULES[name]()
    found = MODULES[name]()
    torch.manual_seed(5)
    found.reset_parameters()  # type: ignore[operator]
    for key, tensor in want.state_dict().items():
        assert torch.equal(found.state_dict()[key], tensor), key


def test_positions_that_are_computed_are_not_drawn() -> None:
    with torch.device("meta"):
        model: Any = PositionedEmbedding(token_table(9, 4, 1), 7, 0.0, sinusoidal=True)
    reset(model)
    assert torch.equal(model.positions, PositionedEmbedding(token_table(9, 4, 1), 7, 0.0, sinusoidal=True).positions)
