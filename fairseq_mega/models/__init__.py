"""fairseq models; importing this package registers them."""

from . import mega, mega_classifier, mega_lm, megalodon_lm, transformer_classifier
from .presets import register_presets

register_presets()

__all__ = ["mega", "mega_classifier", "mega_lm", "megalodon_lm", "transformer_classifier"]
