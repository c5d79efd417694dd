"""A torch that is too old is named when the package is imported."""

import pytest
import torch

from fairseq_mega import compat


@pytest.mark.parametrize("found", ["2.3.1+cpu", "1.13.1"])
def test_an_old_torch_is_named(monkeypatch, found):
    monkeypatch.setattr(torch, "__version__", found)
    with pytest.raises(ImportError, match=f"fairseq_mega needs torch 2.4 or newer, found {found[:6]}"):
        compat.apply()


@pytest.mark.parametrize("found", ["2.4.0", "2.10.0a0+git1234", "3.0.1"])
def test_later_ones_are_not(monkeypatch, found):
    monkeypatch.setattr(torch, "__version__", found)
    compat.require_torch()
