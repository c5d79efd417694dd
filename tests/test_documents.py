"""Files for readers: links, the Python of the README, names of files."""

import re
from pathlib import Path
from typing import Any, Dict, Set

import torch

from fairseq_mega.modules import MegaLayer, MegaLayerConfig
from tests.support.documented_commands import DOCUMENTS
from tests.support.helpers import REPOSITORY

LINK = re.compile(r"\]\((?!http)([^)#\s]*)#?([^)\s]*)\)")


def anchors(document: Path) -> Set[str]:
    """Return the anchors of a document's headings, as GitHub forms them."""
    headings = re.findall(r"^#+ (.*)$", document.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_lead_to_files_and_headings() -> None:
    for document in [*DOCUMENTS, REPOSITORY / "CHANGELOG.md"]:
        for file, anchor in LINK.findall(document.read_text(encoding="utf-8")):
            target = document.parent / file if file else document
            assert target.exists(), (document, file)
            assert not anchor or anchor in anchors(target), (document, file, anchor)


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
    quantised = torch.ao.quantization.quantize_dynamic(layer, {torch.nn.Linear})
    assert [type(part) for part in quantised.modules()] == [type(part) for part in layer.modules()]


def test_the_files_that_contributing_names_exist() -> None:
    text = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")
    named = set(re.findall(r"(?:cli|compat|data|lab|models|modules|ops|tests|scripts)/[\w/]+\.(?:py|sh)", text))
    assert named
    for name in named:
        assert (REPOSITORY / name).exists() or (REPOSITORY / "fairseq_mega" / name).exists(), name
