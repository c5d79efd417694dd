"""Checkpoints in parts: what PyTorch and safetensors return for a module holds for models of fairseq."""

import copy
from typing import Any, Dict

import pytest
import torch
from torch import Tensor, nn

from tests.support.every_model import MODELS, NAMES

OMITTED = {  # ends of names
    "a layer": (".layers.0.",),
    "scales of norms": ("norm.weight",),
    "buffers and a bias": ("._float_tensor", ".version", "sample_scale", ".output.bias", "value_proj.bias"),
}


def part_of(state: Dict[str, Tensor], omitted: str) -> Dict[str, Tensor]:
    part = {key: value for key, value in state.items() if not any(word in key for word in OMITTED[omitted])}
    return {**part, "head.of.another": torch.ones(2)}


@pytest.mark.parametrize("name", NAMES)
def test_a_part_does_what_it_does_in_pytorch(name: str) -> None:
    model, fresh = (MODELS[name](seed=seed) for seed in (0, 1))
    for omitted in OMITTED:
        part = part_of(model.state_dict(), omitted)
        plain, other = copy.deepcopy(fresh), copy.deepcopy(fresh)
        want = nn.Module.load_state_dict(plain, dict(part), strict=False)
        found = other.load_state_dict(dict(part), strict=False)
        assert found == want and set(found.unexpected_keys) == {"head.of.another"}, omitted
        assert all(torch.equal(value, plain.state_dict()[key]) for key, value in other.state_dict().items()), omitted
        if found.missing_keys:
            with pytest.raises(RuntimeError, match="Missing key"):
                other.load_state_dict(dict(part))


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("name", ["translator", "untied", "megalodon he", "mega_lra text", "mega_image", "masked"])
def test_a_wrong_shape_is_an_error(name: str, strict: bool) -> None:
    model: Any = MODELS[name](seed=0)
    key = next(key for key in model.state_dict() if key.endswith("value_proj.weight"))
    with pytest.raises(RuntimeError, match=f"size mismatch for {key}"):
        model.load_state_dict({**model.state_dict(), key: torch.ones(3, 5)}, strict=strict)
