"""fairseq criterions; importing this package registers or mends them."""

from . import adaptive_loss

__all__ = ["adaptive_loss"]
