"""First values: a model on the meta device gets them by ``to_empty`` and ``reset_parameters`` of its modules."""

import math
from typing import Any, Iterator, Tuple

import pytest
import torch
from torch import Tensor, nn

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.embedding import token_table
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


def test_positions_that_are_computed_are_not_drawn() -> None:
    with torch.device("meta"):
        model: Any = PositionedEmbedding(token_table(9, 4, 1), 7, 0.0, sinusoidal=True)
    reset(model)
    assert torch.equal(model.positions, PositionedEmbedding(token_table(9, 4, 1), 7, 0.0, sinusoidal=True).positions)
