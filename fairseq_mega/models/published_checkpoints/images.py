"""Checkpoints of XuezheMax/mega-image, which have no model here yet."""

from typing import Any, Dict

PATCHES = "patch_embed.pemb.proj.weight"


def refuse_images(model: Dict[str, Any], where: str) -> None:
    """Raise a ValueError for the tensors of an image classifier of XuezheMax/mega-image; it names what is missing."""
    if PATCHES not in model:
        return
    blocks = len({name.split(".")[1] for name in model if name.startswith("blocks.")})
    raise ValueError(
        f"--input {where}: this is an image classifier of XuezheMax/mega-image ({blocks} blocks, patches of "
        f"{' x '.join(map(str, model[PATCHES].shape[-2:]))}). No --arch of this package reads images in patches with "
        f"absolute positions, nor has its head (a layer before the mean over the patches) or its stochastic depth: "
        f"there is nothing to convert it to"
    )
