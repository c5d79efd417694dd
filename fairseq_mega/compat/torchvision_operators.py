"""Import torchvision where its compiled operators were built for another torch."""

import importlib
import re

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
