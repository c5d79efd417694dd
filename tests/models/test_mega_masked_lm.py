"""The MEGA encoder that predicts masked tokens: the requested positions and presets."""

from argparse import Namespace

import pytest
import torch
from fairseq.models import ARCH_CONFIG_REGISTRY

from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from fairseq_mega.models.presets import preset_names
from tests.support.tiny_masked_lm import build, task
from tests.support.tiny_mega import batch, lively


def test_the_requested_positions() -> None:
    model = lively(build())
    tokens = batch((9, 4))
    requested = torch.zeros_like(tokens, dtype=torch.bool)
    requested[0, 3] = requested[1, 1] = True
    whole = model(tokens)[0]
    chosen = model(src_tokens=tokens, src_lengths=None, src_id=torch.arange(2), masked_tokens=requested)
    torch.testing.assert_close(chosen[0], whole[requested])
    torch.testing.assert_close(model.get_normalized_probs(chosen, True).exp().sum(-1), torch.ones(2).double())


@pytest.mark.parametrize("arch", preset_names("mega_masked_lm"))
def test_presets(arch) -> None:
    options = Namespace()
    ARCH_CONFIG_REGISTRY[arch](options)
    model = MegaMaskedLanguageModel.build_model(options, task())
    table = model.encoder.embedding.table
    assert model.prediction.output.weight is table and model.prediction.hidden is not None
    assert (model.encoder.final_norm is None) is arch.endswith(("_tiny", "_transformers"))
