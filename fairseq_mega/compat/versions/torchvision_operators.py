"""Import torchvision, and timm, which requires it, even if its compiled operators were built for another torch."""

import importlib
import re
from typing import Any

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


def import_timm(module: str, purpose: str) -> Any:
    """Import a module of timm.

    Args:
        module: full name of the module.
        purpose: feature that requires timm, for the message.

    Raises:
        ValueError: if timm or torchvision is not installed.
    """
    try:
        import_torchvision()
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} requires timm, which is not installed ({error}): run bash scripts/setup.sh --extras images, or "
            f"pip install 'fairseq_mega[images]'"
        ) from error
