"""The README's Python runs as it stands."""

import importlib
import re
from typing import Any, Dict

import torch

from fairseq_mega.ops.attention import attention
from fairseq_mega.ops.ema import damped_ema
from fairseq_mega.ops.gate import gated_residual
from tests.support.helpers import REPOSITORY


def test_a_layer_without_fairseq() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    x = torch.randn(2, 300, 128)
    names: Dict[str, Any] = {"x": x[:, :180], "next_x": x[:, 180:]}
    exec(code, names)
    whole = names["layer"](x).hidden
    pieces = torch.cat([names["out"].hidden, names["more"].hidden], dim=1)
    torch.testing.assert_close(pieces, whole, atol=1e-5, rtol=1e-4)


def test_the_files_that_contributing_names_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:cli|models|modules|ops|tests|corpora|scripts)/[\w/]+\.(?:py|sh)", text))
    assert len(named) > 10
    for name in named:
        assert (REPOSITORY / name).exists() or (REPOSITORY / "fairseq_mega" / name).exists(), name


def test_the_life_of_one_tensor() -> None:
    """What its stations name is in the files they name."""
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (stations,) = re.findall(r"## The life of one tensor\n\n```\n(.*?)```", text, re.DOTALL)
    named = re.findall(r"^ *\d+  ([A-Z]\w+)(?:\.(\w+))? +(\w+/\w+)\.py", stations, re.MULTILINE)
    assert [name for name, _, _ in named] == ["MegaModel", "Trunk", "MegaLayer", "GatedAttention"]
    for name, method, file in named:
        found = getattr(importlib.import_module(f"fairseq_mega.{file.replace('/', '.')}"), name)
        assert not method or callable(getattr(found, method))
    (operators,) = re.findall(r"^ *\d+  ([a-z_, ]+?) +ops/", stations, re.MULTILINE)
    functions = {function.__name__ for function in (damped_ema, attention, gated_residual)}
    assert set(operators.split(", ")) == functions
    assert [int(number) for number in re.findall(r"^ *(\d+)  ", stations, re.MULTILINE)] == list(range(1, 11))
