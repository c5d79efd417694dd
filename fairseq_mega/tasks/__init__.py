"""fairseq tasks; importing this package registers them."""

from fairseq_mega.compat.imports import import_fairseq

import_fairseq()

from . import lra_image, lra_text, mega_language_modeling, megalodon_pretrain, speech_commands  # noqa: E402

__all__ = ["lra_image", "lra_text", "mega_language_modeling", "megalodon_pretrain", "speech_commands"]
