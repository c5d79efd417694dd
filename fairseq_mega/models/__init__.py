"""fairseq models; importing this package registers them."""

from . import mega

__all__ = ["mega"]
