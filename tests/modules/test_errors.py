"""Errors that name fields."""

import pytest
import torch

from fairseq_mega.modules.classifier_inputs import PositionedEmbedding
from fairseq_mega.modules.errors import FieldError
from fairseq_mega.modules.sequence_encoder import SequenceEncoder
from fairseq_mega.modules.transformer_layer import TransformerLayerConfig


def test_a_field_and_its_value():
    error = FieldError("z_dim", "{field} {value}: {relative_bias} rotary requires an even number", value=5)
    assert isinstance(error, ValueError) and error.field == "z_dim"
    assert str(error) == "z_dim 5: relative_bias rotary requires an even number"


def test_other_names():
    error = FieldError("z_dim", "{field} {value}: {relative_bias} rotary requires an even number", value=5)
    names = {"z_dim": "--z-dim", "relative_bias": "--rel-pos-bias", "value": "not this"}
    assert error.under(names) == "--z-dim 5: --rel-pos-bias rotary requires an even number"
    assert error.under({"z_dim": "Z"}) == "Z 5: relative_bias rotary requires an even number"


@pytest.mark.parametrize("value", ["{field}", "{", "}{0}", "%s"])
def test_values_are_told_as_they_are(value):
    error = FieldError("norm", "unknown {field} {value}", value=value)
    assert str(error) == f"unknown norm {value}" and error.under({"norm": "--norm"}) == f"unknown --norm {value}"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 3}, "heads 3 does not divide embed_dim 8"),
        ({"heads": 0}, "heads 0: must be at least 1"),
        ({"ffn_dim": 0}, "ffn_dim 0: must be at least 1"),
        ({"attention_dropout": -0.1}, "attention_dropout -0.1: a dropout probability lies in"),
    ],
)
def test_fields_of_a_transformer_layer(changes, message):
    with pytest.raises(FieldError, match=f"^{message}") as info:
        TransformerLayerConfig(**{"embed_dim": 8, "heads": 2, "ffn_dim": 12, **changes})
    assert info.value.field == next(iter(changes))


def test_a_sequence_without_positions():
    embedding = PositionedEmbedding(torch.nn.Embedding(9, 8), 12, 0.0)
    with pytest.raises(FieldError, match=r"13 positions is longer than the 12 that have a vector \(max_positions\)"):
        embedding(torch.ones(1, 13, dtype=torch.long))
    encoder = SequenceEncoder(embedding, [], None, None, chunk_size=8)
    with pytest.raises(
        FieldError, match="9 real numbers is not a multiple of chunk_size 8: give a chunk that divides 9"
    ):
        encoder(torch.ones(1, 9))
