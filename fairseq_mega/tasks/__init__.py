"""fairseq tasks; importing this package registers them."""

from . import mega_language_modeling

__all__ = ["mega_language_modeling"]
