"""fairseq criterions; importing this package registers or corrects them."""

from fairseq_mega.compat.versions.imports import import_fairseq

import_fairseq()

from . import adaptive_loss, cross_entropy, lra_cross_entropy  # noqa: E402, F401
