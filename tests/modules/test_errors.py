"""Errors that name fields."""

import pytest

from fairseq_mega.modules.errors import FieldError


def test_a_field_and_its_value():
    error = FieldError("z_dim", "{field} {value}: {relative_bias} rotary needs an even number", value=5)
    assert isinstance(error, ValueError) and error.field == "z_dim"
    assert str(error) == "z_dim 5: relative_bias rotary needs an even number"


def test_other_names():
    error = FieldError("z_dim", "{field} {value}: {relative_bias} rotary needs an even number", value=5)
    names = {"z_dim": "--z-dim", "relative_bias": "--rel-pos-bias", "value": "not this"}
    assert error.under(names) == "--z-dim 5: --rel-pos-bias rotary needs an even number"
    assert error.under({"z_dim": "Z"}) == "Z 5: relative_bias rotary needs an even number"


@pytest.mark.parametrize("value", ["{field}", "{", "}{0}", "%s"])
def test_values_are_told_as_they_are(value):
    error = FieldError("norm", "unknown {field} {value}", value=value)
    assert str(error) == f"unknown norm {value}" and error.under({"norm": "--norm"}) == f"unknown --norm {value}"
