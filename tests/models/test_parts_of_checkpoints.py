"""Checkpoints in parts: what PyTorch and safetensors return for a module holds for models of fairseq."""

import copy
import importlib.util
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch
from fairseq import checkpoint_utils
from torch import Tensor, nn

from tests.support import tiny_lm, tiny_mega, tiny_megalodon
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


@pytest.mark.skipif(importlib.util.find_spec("safetensors") is None, reason="needs the package safetensors")
@pytest.mark.parametrize(
    "build, options",
    [
        (tiny_mega.build, {"share_all_embeddings": True}),
        (tiny_mega.build, {"share_decoder_input_output_embed": True}),
        (tiny_lm.build, tiny_lm.ADAPTIVE),
        (tiny_megalodon.build, {"no_affine_norm": True}),
    ],
)
def test_safetensors_loads_a_model_with_shared_tables(build: Any, options: Dict[str, Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file, load_model, save_file, save_model

    file, model, other = str(tmp_path / "model.safetensors"), build(seed=0, **options), build(seed=1, **options)
    save_model(model, file)
    missing, unexpected = load_model(other, file)
    assert not missing and not unexpected
    assert all(torch.equal(value, other.state_dict()[key]) for key, value in model.state_dict().items())
    tensors = load_file(file)
    key = next(key for key in tensors if key.endswith("value_proj.weight"))
    save_file({**{name: tensor for name, tensor in tensors.items() if name != key}, "x": torch.ones(1)}, file)
    missing, unexpected = load_model(other, file, strict=False)
    assert list(missing) == [key] and unexpected == ["x"]
    with pytest.raises(RuntimeError, match="Missing key"):
        load_model(other, file)


def test_fairseq_loads_a_part_of_a_checkpoint(tiny_model: Any, tmp_path: Path, device_flags: List[str]) -> None:
    checkpoint: Dict[str, Any] = torch.load(tiny_model.checkpoint)
    key = next(key for key in checkpoint["model"] if key.endswith("value_proj.weight"))
    del checkpoint["model"][key]
    torch.save(checkpoint, tmp_path / "part.pt")
    given = [str(tmp_path / "part.pt")], {"data": str(tiny_model.data)}
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task(*given, strict=False)
    found = model.state_dict()
    assert found.keys() == {*checkpoint["model"], key}
    assert all(torch.equal(found[name], tensor) for name, tensor in checkpoint["model"].items())
    with pytest.raises(RuntimeError, match=f"Missing key.*{key}"):
        checkpoint_utils.load_model_ensemble_and_task(*given)
