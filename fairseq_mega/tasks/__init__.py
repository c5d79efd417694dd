"""fairseq tasks; importing this package registers them."""

from fairseq_mega.compat.imports import import_fairseq

import_fairseq()

from . import (  # noqa: E402
    image_classification,
    lra_image,
    lra_text,
    mega_language_modeling,
    megalodon_pretrain,
    speech_commands,
)

__all__ = [
    "image_classification",
    "lra_image",
    "lra_text",
    "mega_language_modeling",
    "megalodon_pretrain",
    "speech_commands",
]
