"""fairseq models; importing this package registers them."""

from . import mega, mega_classifier, mega_lm, transformer_classifier

__all__ = ["mega", "mega_classifier", "mega_lm", "transformer_classifier"]
