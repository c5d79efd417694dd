"""The contract of all image classifiers: gradients, recomputation, stochastic depth, defaults, refused input."""

import re
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY

from fairseq_mega.modules.dropout import StochasticDepth
from tests.support import tiny_images

OURS = ("mega_image", "megalodon_image")
ALL = (*OURS, pytest.param("vit_image", marks=tiny_images.needs_timm))
build: Any = tiny_images.build


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 12, 12, generator=torch.Generator().manual_seed(1))


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
def test_recomputing_layers_changes_nothing(arch: str) -> None:
    found = []
    for recomputed in (False, True):
        model = build(arch, checkpoint_activations=recomputed, drop_path=0.3).double().train()
        torch.manual_seed(3)
        model(images().double()).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    for plain, again in zip(*found):
        torch.testing.assert_close(again, plain)


@pytest.mark.parametrize("arch", OURS)
def test_stochastic_depth_is_for_training(arch: str) -> None:
    plain, deep = build(arch, drop_path=0.0), build(arch, drop_path=0.9)
    assert plain.train()(images()).equal(plain.eval()(images()))
    assert deep.eval()(images()).equal(plain(images()))
    outputs = [deep.train()(images()) for _ in range(20)]
    assert len({tuple(output.flatten().tolist()) for output in outputs}) > 1


@pytest.mark.parametrize("arch", OURS)
def test_the_defaults_are_the_base_model(arch: str) -> None:
    with torch.device("meta"):
        free, base = ARCH_MODEL_REGISTRY[arch].build_model(Namespace(), None), build(f"{arch}_base")
    ours, theirs = ([line for line in str(model).splitlines() if "(stoch" not in line] for model in (free, base))
    assert ours == theirs and [part.shape for part in free.parameters()] == [part.shape for part in base.parameters()]
    for model, most in ((free, 0.2), (base, 0.3)):
        rates = [part.p for part in model.modules() if isinstance(part, StochasticDepth)]
        assert rates[::2] == rates[1::2] == pytest.approx([most * index / 11 for index in range(12)])


@pytest.mark.parametrize("arch", ALL)
@pytest.mark.parametrize("shape", [(2, 3, 13, 12), (2, 3, 8, 8), (2, 1, 12, 12), (3, 12, 12)])
def test_other_shapes_are_refused(arch: str, shape: Any) -> None:
    message = f"input of shape {shape}: this model reads images (batch, 3, 12, 12), see --image-size; resize or crop"
    with pytest.raises(ValueError, match=f"^{re.escape(message)}"):
        build(arch)(torch.zeros(shape))
