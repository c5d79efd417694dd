"""Every kind of model and of its tables, norms and inputs, tiny: builders by name, which take a seed."""

from argparse import Namespace
from functools import partial
from typing import Callable, Dict

import pytest
import torch
from torch import nn

from fairseq_mega.models.mega_classifier import MegaClassifier
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

# The names as parameters of a test; one model requires timm.
NAMES = [pytest.param(name, marks=tiny_images.needs_timm if name == "vit_image" else ()) for name in MODELS]
