"""fairseq tasks; importing this package registers them."""

from fairseq_mega.compat.versions.imports import import_fairseq

import_fairseq()

from fairseq.tasks import FairseqTask  # noqa: E402

from fairseq_mega.data.card import card_of_task  # noqa: E402

from . import (  # noqa: E402, F401
    image_classification,
    labelled_language_modeling,
    lra_image,
    lra_text,
    mega_language_modeling,
    megalodon_pretrain,
    speech_commands,
)
from .cleaning import clean_as_in_training  # noqa: E402

FairseqTask.data_card = card_of_task  # of tasks that define none
clean_as_in_training()
