"""Support posterizing to 0 bits by timm's RandAugment, which Pillow 13 and later reject."""

from functools import partial
from typing import Any, Callable

from fairseq_mega.compat.versions.torchvision_operators import import_timm


def allow_no_bits(purpose: str) -> None:
    """Make an image black if timm keeps 0 bits, as earlier versions of Pillow do.

    The "increasing" variant keeps 0 bits at the largest magnitude.

    Args:
        purpose: feature that requires timm, for the message.

    Raises:
        ValueError: if timm is not installed.
    """
    module = import_timm("timm.data.auto_augment", purpose)
    operations, mended = module.NAME_TO_OP, partial(_posterize, module.posterize)
    operations.update({name: mended for name, function in operations.items() if function is module.posterize})


def _posterize(original: Callable, image: Any, bits: int, **settings: Any) -> Any:
    """Keep the highest bits of each number of an image of PIL, in mode RGB or L."""
    return original(image, bits, **settings) if bits > 0 else image.point(lambda _: 0)
