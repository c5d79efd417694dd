"""The README's Python runs as it stands."""

import re
from typing import Any, Dict

import torch

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
    named = set(re.findall(r"(?:cli|compat|data|lab|models|modules|ops|tests|scripts)/[\w/]+\.(?:py|sh)", text))
    assert named
    for name in named:
        assert (REPOSITORY / name).exists() or (REPOSITORY / "fairseq_mega" / name).exists(), name
