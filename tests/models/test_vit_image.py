"""Vision Transformers by timm: their size, and what decays."""

import pytest
import torch

from fairseq_mega.compat.features.no_weight_decay import has_no_weight_decay
from fairseq_mega.compat.versions import image_libraries
from tests.support import tiny_images

pytestmark = tiny_images.needs_timm


def test_parameters():
    """Touvron et al. (ICML 2021), Table 5: 86M, which are those of ViT-B, counted by hand."""
    layer = 4 * 768 + 768 * (3 * 768) + 3 * 768 + 768 * 768 + 768 + 2 * 768 * 3072 + 3072 + 768
    ends = 768 * (3 * 16 * 16 + 1) + 768 * (1 + 197) + 2 * 768 + 768 * 1000 + 1000
    with torch.device("meta"):
        model = tiny_images.build("vit_image_deit_b")
    assert sum(parameter.numel() for parameter in model.parameters()) == 12 * layer + ends == 86_567_656


def test_what_is_not_decayed():
    free = {
        name for name, parameter in tiny_images.build("vit_image").named_parameters() if has_no_weight_decay(parameter)
    }
    assert {"encoder.cls_token", "encoder.pos_embed", "encoder.norm.weight", "encoder.head.bias"} <= free
    assert not {"encoder.head.weight", "encoder.blocks.0.attn.qkv.weight", "encoder.patch_embed.proj.weight"} & free


def test_without_timm(monkeypatch):
    monkeypatch.setattr(image_libraries, "import_torchvision", lambda: exec("raise ImportError('none')"))
    with pytest.raises(ValueError, match="--arch vit_image requires timm, which is not installed .*--extras images"):
        tiny_images.build("vit_image")
