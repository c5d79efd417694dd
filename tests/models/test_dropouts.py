"""Dropout retained in evaluation (--retain-dropout), and begun with an update of a training (--late-dropout)."""

from argparse import Namespace
from typing import Any, Callable, Dict, List

import pytest
import torch

from fairseq_mega.modules.dropout import Dropout
from tests.support import tiny_classifier, tiny_lm, tiny_mega, tiny_megalodon

DROPOUTS = ["dropout", "attention_dropout", "hidden_dropout", "activation_dropout"]


def outputs(model, kind):
    """Two calls of a model, of which each draws anew if it drops anything."""
    torch.manual_seed(1)
    if kind == "translation":
        tokens = tiny_mega.batch()
        return [model(tokens, (tokens != tiny_mega.PAD).sum(1), tokens)[0] for _ in range(2)]
    tokens = tiny_lm.tokens(3, 7, symbols=20)
    results = [model(tokens) for _ in range(2)]
    return [result if torch.is_tensor(result) else result[0] for result in results]


BUILDERS: Dict[str, Callable[..., Any]] = {
    "language model": tiny_lm.build,
    "translation": tiny_mega.build,
    "classifier": tiny_classifier.build,
    "S4D classifier": lambda **options: tiny_classifier.build("s4d_lra", **options),
    "transformer classifier": lambda **options: tiny_classifier.build("transformer_lra", **options),
}
LATE = {"translation": tiny_mega.build, "language model": tiny_lm.build, "MEGALODON": tiny_megalodon.build}
UNKNOWN = [
    ("transformer classifier", "hidden_dropout"),
    *(("S4D classifier", f"{part}_dropout") for part in ("attention", "hidden", "activation")),
]


def prepared(model, **options):
    """The model as fairseq's commands prepare it to generate."""
    generation = Namespace(beam=5, print_alignment=False, **options)
    model.prepare_for_inference_(Namespace(generation=generation))
    assert not model.training
    return model


@pytest.mark.parametrize(
    "kind, option",
    [(kind, option) for kind in BUILDERS for option in DROPOUTS if (kind, option) not in UNKNOWN],
)
def test_every_dropout_is_retained(kind, option):
    rates = {name: 0.5 if name == option else 0.0 for name in DROPOUTS if (kind, name) not in UNKNOWN}
    plain = prepared(tiny_mega.lively(BUILDERS[kind](**rates)).float())
    assert torch.equal(*outputs(plain, kind))
    retained = tiny_mega.lively(BUILDERS[kind](**rates)).float()
    retained = prepared(retained, retain_dropout=True, retain_dropout_modules=None)
    assert not torch.equal(*outputs(retained, kind))


@pytest.mark.parametrize("option", ["dropout", "hidden_dropout", "attention_dropout"])
def test_single_steps_drop_too(option):
    model = tiny_lm.build(**{"dropout": 0.0, option: 0.5})
    model = prepared(tiny_mega.lively(model).float(), retain_dropout=True, retain_dropout_modules=None)
    tokens = tiny_lm.tokens(2, 3, symbols=20)
    results = []
    for seed in (1, 2):
        state: dict = {}
        for step in range(1, 4):
            torch.manual_seed(seed if step == 3 else 0)
            out, _ = model.decoder(tokens[:, :step], incremental_state=state)
        results.append(out)
    assert not torch.equal(*results)


BEGIN = 3
DROPPING = {"dropout": 0.5, "attention_dropout": 0.5, "hidden_dropout": 0.5, "late_dropout": BEGIN}


@pytest.mark.parametrize("kind", LATE)
def test_late_dropout_begins_with_its_update(kind: str) -> None:
    model = tiny_mega.lively(LATE[kind](**DROPPING)).float().train()
    for updates in (0, BEGIN - 1, BEGIN, BEGIN + 1, BEGIN - 1):  # the last one: an earlier checkpoint
        model.set_num_updates(updates)
        assert torch.equal(*outputs(model, kind)) == (updates < BEGIN), updates
        dropouts: List[Dropout] = [module for module in model.modules() if isinstance(module, Dropout) and module.p]
        assert dropouts and all(module.active == (updates >= BEGIN) for module in dropouts)
    model.set_num_updates(BEGIN)
    assert torch.equal(*outputs(model.eval(), kind))
