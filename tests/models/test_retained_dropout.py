"""--retain-dropout: evaluation drops what training does, in every model, decoding step by step included."""

from argparse import Namespace
from typing import Any, Callable, Dict

import pytest
import torch

from tests.support import tiny_classifier, tiny_lm, tiny_mega

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


def test_only_in_some_modules():
    model = prepared(
        tiny_mega.build(dropout=0.5), retain_dropout=True, retain_dropout_modules=["decoder", "feed_forward"]
    )
    retained = {name for name, module in model.named_modules() if getattr(module, "retained", False)}
    assert any(name.startswith("encoder.") and ".feed_forward." in name for name in retained)
    assert any(name.startswith("decoder.") and ".feed_forward." not in name for name in retained)
    assert all(name.startswith("decoder.") or ".feed_forward." in name for name in retained)


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
