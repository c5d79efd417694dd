"""fairseq models; importing this package registers them."""

from . import mega, mega_lm

__all__ = ["mega", "mega_lm"]
