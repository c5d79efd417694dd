"""Convert checkpoints of the published codes to this package's layout, and back.

Tensors get the names of the paper's symbols: facebookresearch/mega's "alpha" is the paper's delta, its "delta" the
paper's alpha. Trailing axes of length one and copies of shared tables are removed.
"""

import importlib
from typing import Any

_PLACES = {
    **dict.fromkeys(("convert_checkpoint", "is_ours", "is_published", "publish_checkpoint"), "checkpoints"),
    "convert_name": "tensors",
}
__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """Import a function at its first use: --help requires none. Raise AttributeError for other names."""
    if name in _PLACES:
        return getattr(importlib.import_module(f"{__name__}.{_PLACES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
