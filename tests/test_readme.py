"""The README's Python runs as it stands."""

import re
from typing import Any, Dict

import torch

from fairseq_mega.modules import MegaLayer, MegaLayerConfig
from fairseq_mega.modules.packed_linear import PackedLinear, pack_linear_maps
from tests.support.helpers import REPOSITORY


def test_a_layer_without_fairseq() -> None:
    text = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: Dict[str, Any] = {}
    exec(code, names)
    pieces = torch.cat([names["out"].hidden, names["more"].hidden], dim=1)
    for row, length in enumerate((300, 250)):
        torch.testing.assert_close(pieces[row, :length], names["whole"][row, :length], atol=1e-5, rtol=1e-4)


def test_maps_that_pytorch_does_not_quantise() -> None:
    config = MegaLayerConfig(embed_dim=16, hidden_dim=32, z_dim=8, ffn_dim=24, chunk_size=8)
    layer = MegaLayer(config).eval()
    kinds = [type(part) for part in layer.modules()]
    quantised = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.Linear})
    assert [type(part) for part in quantised.modules()] == kinds
    pack_linear_maps(layer, "int8")
    packed = [type(part) for part in layer.modules()]
    assert packed == [PackedLinear if issubclass(kind, torch.nn.Linear) else kind for kind in kinds] != kinds


def test_the_files_that_contributing_names_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:cli|compat|data|lab|models|modules|ops|tests|scripts)/[\w/]+\.(?:py|sh)", text))
    assert named
    for name in named:
        assert (REPOSITORY / name).exists() or (REPOSITORY / "fairseq_mega" / name).exists(), name
