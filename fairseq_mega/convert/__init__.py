"""Convert checkpoints of the published codes to this package's layout, and back.

Tensors get the names of the paper's symbols: facebookresearch/mega's "alpha" is the paper's delta, its "delta" the
paper's alpha. Trailing axes of length one and copies of shared tables are removed.
"""

from .checkpoints import convert_checkpoint, is_ours, is_published, publish_checkpoint
from .tensors import convert_name

__all__ = ["convert_checkpoint", "convert_name", "is_ours", "is_published", "publish_checkpoint"]
