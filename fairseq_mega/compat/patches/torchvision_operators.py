"""Import torchvision, and timm, which needs it, where its compiled operators were built for another torch."""

import importlib
import re
from typing import Any

import torch


def import_torchvision() -> None:
    """Import torchvision for what it does without its compiled operators, such as transforms.

    The wheels of the Python index are built for CUDA. Beside a torch for the CPU their library does not load, and the
    import ends with "operator torchvision::nms does not exist", as the package describes the operators to torch all
    the same. Those that it misses are declared here; they have no implementation and cannot be called.

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
            torch.library.define(missing[1], "() -> ()")  # a RuntimeError where it was declared before


def import_timm(module: str, purpose: str) -> Any:
    """A module of timm.

    Args:
        module: its full name.
        purpose: what needs it, for the message.

    Raises:
        ValueError: with the remedy, if timm or torchvision is not installed.
    """
    try:
        import_torchvision()
        return importlib.import_module(module)
    except ImportError as error:
        raise ValueError(
            f"{purpose} needs timm, which is not installed ({error}): bash scripts/setup.sh --extras images, or pip "
            f"install 'fairseq_mega[images]'"
        ) from error
