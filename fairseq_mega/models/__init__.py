"""fairseq models; importing this package registers them."""

from fairseq_mega.compat.versions.imports import import_fairseq

import_fairseq()

from . import (  # noqa: E402, F401
    baseline_classifiers,
    llama_lm,
    mega,
    mega_classifier,
    mega_image,
    mega_lm,
    mega_masked_lm,
    megalodon_classifier,
    megalodon_image,
    megalodon_lm,
    s4d_lm,
    vit_image,
)
from .presets import register_presets  # noqa: E402

register_presets()
