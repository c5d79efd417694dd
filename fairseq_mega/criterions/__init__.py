"""fairseq criterions; importing this package registers or corrects them."""

from . import adaptive_loss, lra_cross_entropy

__all__ = ["adaptive_loss", "lra_cross_entropy"]
