"""Texts behind one another in a row give what they give padded: outputs, gradients, and running statistics."""

import copy
from argparse import Namespace
from types import SimpleNamespace
from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from fairseq_mega.models.mega_masked_lm import MegaMaskedLanguageModel
from fairseq_mega.modules.activation import ACTIVATIONS
from fairseq_mega.modules.norm import NORMS
from fairseq_mega.modules.packing import Packing
from fairseq_mega.ops.attention import FUNCTIONS
from tests.support.tiny_classifier import TINY, build, padded, texts
from tests.support.tiny_mega import PAD, dictionary, lively

CHUNK = 5
LENGTHS = (1, CHUNK - 1, CHUNK, CHUNK + 1, 24, 23, 17, 2, 40)  # 24 and 23 share a call of the attention
ROWWISE = [norm for norm in NORMS if "batch" not in norm]
MODELS: List[Tuple[str, Dict[str, Any]]] = [
    *(("mega_lra", {"normalization_type": norm}) for norm in ROWWISE),
    *(("mega_lra", {"attention_activation_fn": function, "rel_pos_bias": "rotary"}) for function in FUNCTIONS),
    ("mega_lra", {"normalize_before": True, "activation_fn": list(ACTIVATIONS)[-1]}),
    ("mega_lra", {"truncation_length": 7}),
    ("mega_lra", {"encoder_n_dim": 0}),
    ("mega_lra", {"checkpoint_activations": True}),
    ("megalodon_lra", {}),
    ("megalodon_lra", {"swiglu": True, "layer_scale": True, "ema_norm": "silu", "residual_hops": 1}),
    ("s4d_lra", {"normalization_type": "layernorm"}),
    ("transformer_lra", {}),
    ("transformer_lra", {"normalize_before": False, "sen_rep_type": "cls"}),
]
CASES = [
    (arch, options, chunk)
    for arch, options in MODELS
    for chunk in (-1, CHUNK, 2 * CHUNK + 1)
    if chunk < 0 or arch.startswith("mega")
]


@pytest.fixture
def packings(monkeypatch: pytest.MonkeyPatch) -> List[Packing]:
    """The packings that are made during a test."""
    made: List[Packing] = []
    original = Packing.__init__

    def noted(self: Packing, *arguments: Any) -> None:
        original(self, *arguments)
        made.append(self)

    monkeypatch.setattr(Packing, "__init__", noted)
    return made


def classifier(arch: str, options: Dict[str, Any], chunk: int) -> Any:
    chunks = {"encoder_chunk_size": chunk} if arch.startswith("mega") else {}
    return lively(build(arch, **{"dropout": 0.0, **chunks, **options})).train()


def result(model: Any, pad: bool, *inputs: Any) -> List[Tensor]:
    """The output and all gradients, after a training step's forward and backward pass."""
    model = copy.deepcopy(model)
    model.encoder.pad = pad
    out = model(*inputs)
    out = out[0] if isinstance(out, tuple) else out
    weight = torch.linspace(-1, 2, out.numel(), dtype=out.dtype).view_as(out)
    (out * weight).sum().backward()
    parameters = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert all(parameter.grad is not None for parameter in parameters.values())
    return [out.detach(), *(parameter.grad for parameter in parameters.values() if parameter.grad is not None)]


def compare(model: Any, *inputs: Any, **tolerance: Any) -> None:
    for got, want in zip(result(model, False, *inputs), result(model, True, *inputs)):
        torch.testing.assert_close(got, want, **tolerance)


@pytest.mark.parametrize(("arch", "options", "chunk"), CASES, ids=str)
def test_classifiers(arch: str, options: Dict[str, Any], chunk: int, packings: List[Packing]) -> None:
    compare(classifier(arch, options, chunk), padded(texts(LENGTHS)))
    assert len(packings) == 1  # by one of the two


def test_pairs_of_documents(packings: List[Packing]) -> None:
    model = lively(build("mega_lra", documents=2, dropout=0.0)).train()
    compare(model, padded(texts((3, 30, 9))), None, padded(texts((11, 2, 40), seed=3)))
    assert len(packings) == 2


@pytest.mark.parametrize("chunk", [-1, CHUNK])
def test_masked_language_models(chunk: int, packings: List[Packing]) -> None:
    options = {**TINY["mega_lra"], "dropout": 0.0, "encoder_chunk_size": chunk}
    torch.manual_seed(0)
    symbols = SimpleNamespace(source_dictionary=dictionary(20))
    model = lively(MegaMaskedLanguageModel.build_model(Namespace(**options), symbols)).train()
    tokens = padded(texts(LENGTHS))
    compare(model, tokens, None, tokens.ne(PAD) & (torch.arange(tokens.size(1)) % 3 == 0))
    compare(model, tokens)
    assert len(packings) == 2


def test_texts_without_a_token_and_padding_inside() -> None:
    tokens = padded(texts((6, 12, 40)))
    tokens[0] = PAD
    tokens[1, 3] = PAD
    for chunk in (-1, CHUNK):
        compare(classifier("mega_lra", {}, chunk), tokens)


@pytest.mark.parametrize(
    ("arch", "options"),
    [("mega_lra", {"normalization_type": "batchnorm"}), ("s4d_lra", {"normalization_type": "batchnorm"})],
)
def test_batch_norm_counts_padding_in_training_alone(
    arch: str, options: Dict[str, Any], packings: List[Packing], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO"):
        model = classifier(arch, options, -1)
    assert "batch norm" in caplog.text
    tokens = padded(texts(LENGTHS))
    model(tokens)
    assert packings == []
    model.eval()
    compare(model, tokens)
    assert len(packings) == 1


def test_features_are_dropped_row_by_row(packings: List[Packing], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        model = classifier("mega_lra", {"dropout": 0.1, "feature_dropout": True}, -1)
    assert "whole features" in caplog.text
    model(padded(texts(LENGTHS)))
    assert packings == []


def test_dropout_drops_as_often(packings: List[Packing]) -> None:
    """The mean over many draws is that of padded batches, within what chance allows."""
    model = lively(build("mega_lra", dropout=0.2, attention_dropout=0.2, hidden_dropout=0.2)).train()
    tokens = padded(texts(LENGTHS))
    means, spread = [], torch.zeros(())
    for pad in (False, True):
        model.encoder.pad = pad
        torch.manual_seed(1)
        with torch.no_grad():
            draws = torch.stack([model(tokens) for _ in range(300)])
        means.append(draws.mean(0))
        spread = draws.std(0)
    assert packings
    assert ((means[0] - means[1]).abs() / (spread * (2 / 300) ** 0.5)).max() < 5
