"""Import torchvision and timm even if torchvision's operators were built for another torch, and posterize to 0 bits."""

import importlib
import re
from functools import partial
from typing import Any, Callable

import torch


def import_torchvision() -> None:
    """Import torchvision for its parts without compiled operators, such as transforms.

    The wheels of the Python index are built for CUDA. With a torch for the CPU their library does not load, and the
    import fails with "operator torchvision::nms does not exist", because the package registers the operators anyway.
    This function declares the missing operators, without an implementation.

    Raises:
        ImportError: if torchvision is not installed.
        RuntimeError: if it cannot be imported for another reason.
    """
    while True:
        try:
            importlib.import_module("torchvision")
            return
        except RuntimeError as error:
            missing = re.search(r"operator (torchvision::\w+) does not exist", str(error))
            if missing is None:
                raise
            torch.library.define(missing[1], "() -> ()")  # raises RuntimeError if it was declared before


def import_timm(module: str) -> Any:
    """Import a module of timm by its full name; raises ImportError if timm or torchvision is not installed."""
    import_torchvision()
    return importlib.import_module(module)


def allow_no_bits() -> None:
    """Make an image black if timm's RandAugment keeps 0 bits, which Pillow 13 and later reject.

    Its "increasing" variant keeps 0 bits at the largest magnitude.
    """
    module = import_timm("timm.data.auto_augment")
    operations, mended = module.NAME_TO_OP, partial(_posterize, module.posterize)
    operations.update({name: mended for name, function in operations.items() if function is module.posterize})


def _posterize(original: Callable, image: Any, bits: int, **settings: Any) -> Any:
    """Keep the highest bits of each number of an image of PIL, in mode RGB or L."""
    return original(image, bits, **settings) if bits > 0 else image.point(lambda _: 0)
