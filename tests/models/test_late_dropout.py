"""--late-dropout: no dropout of any kind in the first updates of a training, all of it afterwards."""

from typing import Any, Callable, Dict, List

import pytest
import torch

from fairseq_mega.modules.dropout import Dropout
from tests.models.test_retained_dropout import outputs
from tests.support import tiny_lm, tiny_mega, tiny_megalodon

BEGIN = 3
DROPPING = {"dropout": 0.5, "attention_dropout": 0.5, "hidden_dropout": 0.5, "late_dropout": BEGIN}
BUILDERS: Dict[str, Callable[..., Any]] = {
    "translation": tiny_mega.build,
    "language model": tiny_lm.build,
    "MEGALODON": tiny_megalodon.build,
}


@pytest.mark.parametrize("kind", BUILDERS)
def test_it_begins_with_its_update(kind: str) -> None:
    model = tiny_mega.lively(BUILDERS[kind](**DROPPING)).float().train()
    for updates in (0, BEGIN - 1, BEGIN, BEGIN + 1, BEGIN - 1):  # the last one: an earlier checkpoint
        model.set_num_updates(updates)
        assert torch.equal(*outputs(model, kind)) == (updates < BEGIN), updates
        dropouts: List[Dropout] = [module for module in model.modules() if isinstance(module, Dropout) and module.p]
        assert dropouts and all(module.active == (updates >= BEGIN) for module in dropouts)
    model.set_num_updates(BEGIN)
    assert torch.equal(*outputs(model.eval(), kind))


@pytest.mark.parametrize("kind", BUILDERS)
def test_usually_dropout_is_there_at_once(kind: str) -> None:
    model = tiny_mega.lively(BUILDERS[kind](**{**DROPPING, "late_dropout": 0})).float().train()
    assert not torch.equal(*outputs(model, kind))


@pytest.mark.parametrize("kind", BUILDERS)
def test_retained_dropout_does_not_wait(kind: str) -> None:
    model = tiny_mega.lively(BUILDERS[kind](**DROPPING)).float().eval()
    for name, module in model.named_modules():
        if isinstance(module, Dropout):
            module.make_generation_fast_(name, retain_dropout=True)
    assert not torch.equal(*outputs(model, kind))
