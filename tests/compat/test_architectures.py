"""Models of the class that a command works with, and no others."""

import pytest
from fairseq.models import FairseqLanguageModel
from fairseq.models.fconv_lm import FConvLanguageModel

from fairseq_mega.compat.features.architectures import architectures, require_models
from fairseq_mega.models.mega_lm import MegaLanguageModel


def test_another_kind_is_refused() -> None:
    model = FConvLanguageModel.__new__(FConvLanguageModel)
    with pytest.raises(ValueError, match="FConvLanguageModel.*MegaLanguageModel"):
        require_models([model], MegaLanguageModel)
    require_models([model], MegaLanguageModel, FairseqLanguageModel)


def test_our_models_come_first() -> None:
    names = architectures()
    assert names[0].startswith("mega") and not names[-1].startswith("mega") and "transformer" not in names
