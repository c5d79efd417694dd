"""fairseq optimisers and learning-rate schedules; importing this package registers them."""

from fairseq_mega.compat.versions.imports import import_fairseq

import_fairseq()

from . import adam_selective_decay, schedules  # noqa: E402, F401
