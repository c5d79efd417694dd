"""Checkpoints of XuezheMax/mega-image: their numbers, converted and back, and what is refused."""

from argparse import Namespace
from typing import Any

import pytest
import torch

from fairseq_mega.convert.building import build_model
from fairseq_mega.convert.images import convert_images, publish_images
from fairseq_mega.convert.tensors import convert_state_dict
from fairseq_mega.models.mega_image import MegaImageModel
from tests.support import published_images
from tests.support.plain.comparing import assert_same, largest_difference
from tests.support.plain.images import image_classifier
from tests.support.published_images import SIZE


def images(count: int = 3) -> torch.Tensor:
    return torch.randn(count, 3, SIZE, SIZE, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-5)])
def test_outputs_and_gradients(dtype: torch.dtype, tolerance: float) -> None:
    """Outputs and gradients of our model are those of the published formulas in float64."""
    given = published_images.checkpoint(blocks=3)
    weights = {name: tensor.double().requires_grad_() for name, tensor in given["model"].items()}
    want = image_classifier(weights, images().double())
    want.square().mean().backward()
    converted = convert_images(given, "")
    model = build_model(converted["args"], converted["model"])
    model.load_state_dict(converted["model"])
    model.to(dtype).eval()
    got = model(images().to(dtype))
    assert (got - want).abs().max() <= tolerance * want.abs().max().clamp(min=1)
    got.square().mean().backward()
    gradients = {name: weight.grad for name, weight in weights.items() if weight.grad is not None}
    assert len(gradients) == len(given["model"])
    wanted = convert_state_dict(gradients, shared_output=False)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        error, scale = (parameter.grad - wanted[name]).abs().max(), wanted[name].abs().max()
        assert scale > 0 and error <= 10 * tolerance * scale, name


def test_a_file_without_options() -> None:
    """The tensors tell all but the dropouts, in both directions."""
    given = {"model": published_images.checkpoint()["model"]}
    converted = convert_images(given, "x")
    assert largest_difference(given, converted) < 1e-5
    assert not hasattr(converted["args"], "drop_path")
    fresh = {"args": converted["args"], "model": converted["model"]}  # as of a training of ours
    back = publish_images(fresh, "x")
    assert_same(back["model"], given["model"])
    assert vars(back["args"]).items() >= {"input_size": 12, "nb_classes": 3, "norm_type": "layernorm"}.items()


def test_names_of_published_models() -> None:
    with torch.device("meta"):
        for width, name in ((768, "mega_base_patch16_224"), (192, "mega_tiny_patch16_224")):
            shape = {"encoder_embed_dim": width, "encoder_hidden_dim": 2 * width, "encoder_z_dim": width // 3}
            model = MegaImageModel.build_model(Namespace(**shape)).state_dict()
            given = {"model": model, "args": Namespace(arch="mega_image", drop_path=0.1)}
            args = publish_images(given, "x")["args"]
            assert (args.model, args.input_size, args.drop_path) == (name, 224, 0.1)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        *(("patch_embed.pemb.proj.weight", (8, 48)), ("patch_embed.pemb.proj.weight", (8, 3, 4, 2))),
        ("pos_embed", (1, 10, 8)),
    ],
)
def test_what_no_model_here_has_is_refused(name: str, shape: Any) -> None:
    given = published_images.checkpoint()
    given["model"][name] = torch.zeros(shape)
    with pytest.raises(ValueError, match="--input x: "):
        convert_images(given, "x")


def test_what_the_published_code_has_not_is_refused() -> None:
    converted = convert_images(published_images.checkpoint(), "x")
    for option, value in (("normalization_type", "rmsnorm"), ("encoder_ffn_embed_dim", 0)):
        options = Namespace(**{**vars(converted["args"]), option: value})
        with pytest.raises(ValueError, match="the published layers have an FFN, and norms of layernorm, batchnorm"):
            publish_images({**converted, "args": options}, "x")
