"""The published image classifier (XuezheMax/mega-image) written down plainly, on its own names; see forward.py."""

import torch.nn.functional as F
from torch import Tensor

from tests.support.plain.forward import Weights, linear
from tests.support.plain.models import run_layers

OTHER_NAME = {"move.alpha": "move.delta", "move.delta": "move.alpha"}  # here "alpha" weighs the input
OPTIONS = {
    "activation": "silu",
    "function": "laplace",
    "norm": "layernorm",
    "prenorm": True,
    "truncation": 0,
    "chunk": -1,
    "causal": False,
    "shift": True,
}


def image_classifier(weights: Weights, images: Tensor) -> Tensor:
    """Logits (B, classes) of images (B, 3, S, S)."""
    patches = weights["patch_embed.pemb.proj.weight"]
    size = patches.size(-1)
    columns = F.unfold(images, size, stride=size).transpose(1, 2)  # (B, L, 3 P P)
    x = columns @ patches.flatten(1).T + weights["patch_embed.pemb.proj.bias"] + weights["pos_embed"]
    layers = {name.replace("blocks.", "layers.", 1): tensor for name, tensor in weights.items()}
    x = run_layers({_renamed(name): tensor for name, tensor in layers.items()}, OPTIONS, x, None)
    return linear(weights, "head", F.silu(linear(weights, "out_proj.fc", x)).mean(1))


def _renamed(name: str) -> str:
    """The name that facebookresearch/mega has for a tensor of a layer."""
    found = next((own for own in OTHER_NAME if name.endswith(own)), None)
    return name if found is None else name[: -len(found)] + OTHER_NAME[found]
