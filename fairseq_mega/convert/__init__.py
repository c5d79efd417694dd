"""Checkpoints of the published codes, renamed and laid out as this package's, and back.

The tensors are renamed to the paper's symbols (facebookresearch/mega's "alpha" and "delta" are each other's),
trailing axes of length one are dropped, and copies of shared tables are left out.
"""

from .checkpoints import convert_checkpoint, is_ours, is_published, publish_checkpoint
from .tensors import convert_name

__all__ = ["convert_checkpoint", "convert_name", "is_ours", "is_published", "publish_checkpoint"]
