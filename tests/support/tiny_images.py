"""Tiny image classifiers, and colour images whose brightness is their class for --task image-classification."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import fairseq_mega.models  # noqa: F401
from tests.support.tiny_classifier import of_arch

needs_timm = pytest.mark.skipif(
    importlib.util.find_spec("timm") is None, reason="timm is not installed: bash scripts/setup.sh --extras dev"
)
SIZES = {"train": 24, "valid": 7, "test": 9}
SIZE, CLASSES = 8, 3
TINY = {
    "encoder_embed_dim": 8,
    "encoder_hidden_dim": 12,
    "encoder_ffn_embed_dim": 10,
    "encoder_z_dim": 4,
    "encoder_n_dim": 3,
    "encoder_layers": 3,
    "image_size": 12,
    "patch_size": 4,
    "image_class_num": 5,
    "norm_num_groups": 4,  # of MEGALODON
}


VIT = {  # of timm, which has neither of MEGA's widths
    **{name: TINY[name] for name in ("encoder_embed_dim", "encoder_ffn_embed_dim", "image_size", "patch_size")},
    "encoder_attention_heads": 2,
    "encoder_layers": 2,
    "image_class_num": TINY["image_class_num"],
}


def write(folder: Path, size: int = SIZE) -> Path:
    draw = np.random.default_rng(3)
    for name in ("input", "label"):
        (folder / name).mkdir(parents=True)
    for split, count in SIZES.items():
        labels = draw.integers(CLASSES, size=count)
        images = 80 * labels[:, None, None, None] + draw.integers(60, size=(count, size, size, 3))
        np.save(folder / "input" / f"{split}.npy", images.astype(np.uint8))
        (folder / "label" / f"{split}.label").write_text("".join(f"{label}\n" for label in labels))
    return folder


def write_files(folder: Path, counts=None, size: int = 12) -> Path:
    """JPEG files in a folder per class, wider than high."""
    from PIL import Image

    draw = np.random.default_rng(3)
    for split, count in (counts or SIZES).items():
        for image in range(count):
            label = image % CLASSES
            (folder / split / f"class{label}").mkdir(parents=True, exist_ok=True)
            pixels = 80 * label + draw.integers(60, size=(size, size + 5, 3))
            Image.fromarray(pixels.astype(np.uint8)).save(folder / split / f"class{label}" / f"{image:03}.JPEG")
    return folder


def build(arch="mega_image", seed=0, **options):
    tiny = {"mega_image": TINY, "megalodon_image": TINY, "vit_image": VIT}
    return of_arch(arch, tiny.get(arch, {}), None, seed, **options)
