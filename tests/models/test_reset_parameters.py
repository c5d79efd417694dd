"""First values: a model on the meta device gets them by ``to_empty`` and ``reset_parameters`` of its modules."""

import math
from argparse import Namespace
from functools import partial
from typing import Any, Callable, Dict, Iterator, Tuple

import pytest
import torch
from torch import Tensor, nn

from fairseq_mega.models.mega_classifier import MegaClassifier
from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.embedding import token_table
from fairseq_mega.modules.megalodon.config import INIT_MODES
from fairseq_mega.modules.norm import NORMS
from tests.support import tiny_classifier, tiny_images, tiny_llama, tiny_lm, tiny_masked_lm, tiny_mega, tiny_megalodon

UNTIED = {"share_decoder_input_output_embed": False, "decoder_input_dim": 6}
NO_TIES = {"tie_adaptive_weights": False, "tie_adaptive_proj": False}
WIDE = {"encoder_embed_dim": 64, "encoder_ffn_embed_dim": 96}


def speech(seed: int) -> nn.Module:
    """A classifier that records the scale of its samples."""
    torch.manual_seed(seed)
    task = tiny_classifier.task("image")
    task.scaling = "twice"
    return MegaClassifier.build_model(Namespace(**tiny_classifier.TINY["mega_lra"]), task)


MODELS: Dict[str, Callable[..., nn.Module]] = {
    "translator": tiny_mega.build,
    "translator with one table": partial(tiny_mega.build, share_all_embeddings=True, rel_pos_bias="rotary"),
    "translator with adaptive softmax": partial(tiny_mega.build, adaptive_softmax_cutoff="6,13"),
    "untied": partial(tiny_lm.build, **UNTIED),
    "adaptive": partial(tiny_lm.build, **tiny_lm.ADAPTIVE),
    "adaptive, untied": partial(tiny_lm.build, **{**tiny_lm.ADAPTIVE, **NO_TIES}),
    "adaptive, another width": partial(tiny_lm.build, **tiny_lm.ADAPTIVE, decoder_input_dim=4),
    **{f"norm {norm}": partial(tiny_lm.build, normalization_type=norm, rel_pos_bias="simple") for norm in NORMS},
    "megalodon, untied": partial(tiny_megalodon.build, **UNTIED, layer_scale=True),
    "megalodon, adaptive": partial(tiny_megalodon.build, **tiny_lm.ADAPTIVE, no_affine_norm=True),
    **{f"megalodon {mode}": partial(tiny_megalodon.build, init_mode=mode) for mode in INIT_MODES},
    "llama": tiny_llama.build,
    "masked": tiny_masked_lm.build,
    "masked with token types": partial(tiny_masked_lm.build, **tiny_masked_lm.TOKEN_TYPES),
    **{
        f"{arch} {kind}": partial(tiny_classifier.build, arch, kind, **more)
        for arch, more in (*((arch, {}) for arch in tiny_classifier.TINY), ("transformer_lra", {"sen_rep_type": "mp"}))
        for kind in ("text", "image")
    },
    "speech": speech,
    "mega_image": tiny_images.build,
    "megalodon_image": partial(tiny_images.build, "megalodon_image"),
    "vit_image": partial(tiny_images.build, "vit_image", **WIDE),
}

NAMES = [pytest.param(name, marks=tiny_images.needs_timm if name == "vit_image" else ()) for name in MODELS]


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
