"""The contract of all image classifiers: sizes, gradients, recomputation, stochastic depth, weight decay, input."""

import re
from argparse import Namespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.compat.features.no_weight_decay import has_no_weight_decay
from fairseq_mega.convert.tensors import publish_state_dict
from fairseq_mega.modules.dropout import StochasticDepth
from tests.support import tiny_images
from tests.support.tiny_mega import lively

OURS = ("mega_image", "megalodon_image")
VIT = tiny_images.needs_timm
ALL = (*OURS, pytest.param("vit_image", marks=VIT))
build: Any = tiny_images.build


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))


@VIT
def test_the_size_by_timm() -> None:
    """tests/models/test_sizes.py counts the model on paper, whose layers are not timm's."""
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in build("vit_image_deit_b").parameters()) == 86_567_656


@pytest.mark.parametrize("arch", ALL)
def test_each_parameter_learns_and_each_patch_counts(arch: str) -> None:
    model = build(arch, drop_path=0.5) if arch in OURS else build(arch)
    batch = images(4).requires_grad_()
    logits = model(batch)
    assert logits.shape == (4, 5)
    logits.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad.isfinite().all() and parameter.grad.abs().max() > 0, name
    assert batch.grad is not None and batch.grad.abs().amin() > 0


@pytest.mark.parametrize("arch", OURS)
def test_the_defaults_are_the_base_model(arch: str) -> None:
    with torch.device("meta"):
        free, base = ARCH_MODEL_REGISTRY[arch].build_model(Namespace(), None), build(f"{arch}_base")
    ours, theirs = ([line for line in str(model).splitlines() if "(stoch" not in line] for model in (free, base))
    assert ours == theirs and [part.shape for part in free.parameters()] == [part.shape for part in base.parameters()]
    for model, most in ((free, 0.2), (base, 0.3)):
        rates = [part.p for part in model.modules() if isinstance(part, StochasticDepth)]
        assert rates[::2] == rates[1::2] == pytest.approx([most * index / 11 for index in range(12)])


@pytest.mark.parametrize("norm", ["layernorm", "batchnorm"])
def test_weight_decay_omits_what_the_published_training_omits(norm: str) -> None:
    """Parameters without weight decay have the published names and shapes; each of ours has a published name."""
    parameters = dict(build("mega_image", normalization_type=norm).named_parameters())
    published = publish_state_dict(parameters, shared_output=False)
    assert len(published) == len(parameters)
    want = {
        name
        for name, tensor in published.items()
        if name.endswith(".bias") or (name.endswith(".weight") and tensor.dim() == 1) or name == "pos_embed"
    }
    marked = {name: parameter for name, parameter in parameters.items() if has_no_weight_decay(parameter)}
    assert set(publish_state_dict(marked, shared_output=False)) == want
    assert {"pos_embed", "head.bias", "blocks.2.mega_layer.norm.norm.weight", "patch_embed.pemb.proj.bias"} <= want
    assert not {"blocks.0.mega_layer.move.omega", "blocks.0.mega_layer.rel_pos_bias.rel_pos_bias"} & want
    assert all(name in published for name in ("blocks.0.mega_layer.move.omega", "blocks.0.nffn.fc1.weight"))


def plain(model: Any, batch: torch.Tensor) -> torch.Tensor:
    """Logits patch by patch, layer by layer, and by torch's own group norm over features and patches."""
    weight, encoder = dict(model.named_parameters()), model.encoder
    patches = [batch[:, :, i : i + 4, j : j + 4].flatten(1) for i in range(0, 12, 4) for j in range(0, 12, 4)]
    x = torch.stack(patches, 1) @ weight["encoder.embedding.patches.weight"].flatten(1).t()
    x = x + weight["encoder.embedding.patches.bias"] + weight["encoder.embedding.positions"]
    for layer in encoder.layers:
        hidden = layer.attention(x).hidden
        x = layer.feed_forward(hidden, residual=x)
    scale, shift = weight["encoder.final_norm.weight"] + 1, weight["encoder.final_norm.bias"]
    x = F.group_norm(x.transpose(1, 2), 4, scale, shift).transpose(1, 2)
    x = F.silu(x @ weight["head.hidden.weight"].t() + weight["head.hidden.bias"]).mean(1)
    return x @ weight["head.output.weight"].t() + weight["head.output.bias"]


@pytest.mark.parametrize("recomputed", [False, True])
def test_values_and_gradients(recomputed: bool) -> None:
    """Logits, and the gradients of the parameters and of each pixel, are those of the plain formulas."""
    model = lively(build("megalodon_image", drop_path=0.0, checkpoint_activations=recomputed)).train()
    assert model.encoder.checkpoint_activations == recomputed
    batch = images(3).double().requires_grad_()
    found, want = model(batch), plain(model, batch)
    torch.testing.assert_close(found, want)
    assert found.shape == (3, 5)
    over = [batch, *model.parameters()]
    gradients = [torch.autograd.grad(logits.square().sum(), over, retain_graph=True) for logits in (found, want)]
    for mine, other in zip(*gradients):
        assert mine.abs().max() > 0
        torch.testing.assert_close(mine, other)
    assert gradients[0][0].abs().amin() > 0


def test_what_megalodon_does_not_decay() -> None:
    free = {name for name, parameter in build("megalodon_image").named_parameters() if has_no_weight_decay(parameter)}
    layer = ("norm.weight", "norm.bias", "ema_norm.weight", "value_proj.bias", "gate_proj.bias")
    parts = [*(f"attention.{part}" for part in layer), "feed_forward.norm.weight", "feed_forward.norm.bias"]
    ends = ("embedding.patches.bias", "embedding.positions", "final_norm.weight", "final_norm.bias")
    want = {f"encoder.layers.{index}.{part}" for index in range(3) for part in parts}
    assert free == want | {f"encoder.{end}" for end in ends} | {"head.hidden.bias", "head.output.bias"}


@VIT
def test_what_a_vision_transformer_does_not_decay() -> None:
    free = {name for name, tensor in build("vit_image").named_parameters() if has_no_weight_decay(tensor)}
    assert {"encoder.cls_token", "encoder.pos_embed", "encoder.norm.weight", "encoder.head.bias"} <= free
    assert not {"encoder.head.weight", "encoder.blocks.0.attn.qkv.weight", "encoder.patch_embed.proj.weight"} & free


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("shape", [(2, 3, 13, 12), (2, 3, 8, 8), (2, 1, 12, 12), (3, 12, 12)])
def test_other_shapes_are_refused(arch: str, shape: Any) -> None:
    with pytest.raises(ValueError, match=rf"^input of shape {re.escape(str(shape))}: .*--image-size"):
        build(arch)(torch.zeros(shape))
