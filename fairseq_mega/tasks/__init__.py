"""fairseq tasks; importing this package registers them."""

from . import lra_image, lra_text, mega_language_modeling, speech_commands

__all__ = ["lra_image", "lra_text", "mega_language_modeling", "speech_commands"]
