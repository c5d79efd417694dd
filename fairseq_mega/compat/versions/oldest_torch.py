"""Check for the oldest supported torch; pip checks it too, other ways of installing do not."""

import torch

OLDEST_TORCH = (2, 4)  # the first with F.rms_norm, and with is_autocast_enabled(device_type)


def require_torch() -> None:
    """Raise ImportError for a torch that lacks what the package uses."""
    found = tuple(int(part) for part in torch.__version__.split(".")[:2])
    if found < OLDEST_TORCH:
        needed = ".".join(map(str, OLDEST_TORCH))
        raise ImportError(
            f"fairseq_mega needs torch {needed} or newer, found {torch.__version__}: pip install 'torch>={needed}'"
        )
