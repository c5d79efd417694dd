"""How many files a reader has to open to follow one layer."""

import sys
from pathlib import Path
from typing import Any, Set

import pytest
import torch

import fairseq_mega
from fairseq_mega.modules.config import MegaLayerConfig
from fairseq_mega.modules.mega_layer import MegaLayer
from fairseq_mega.ops import native

PACKAGE = Path(fairseq_mega.__file__).parent
MOST_MODULES = 7
MOST_FILES = 14


def files_executed(layer: MegaLayer, x: torch.Tensor) -> Set[str]:
    """Files of the package, relative to it, of which one forward pass calls a function."""
    found: Set[str] = set()

    def note(frame: Any, event: str, argument: Any) -> None:
        if event == "call":
            found.add(frame.f_code.co_filename)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        layer(x)
    finally:
        sys.setprofile(before)
    return {str(Path(name).relative_to(PACKAGE)) for name in found if name.startswith(str(PACKAGE))}


@pytest.mark.skipif(native.PROBLEM is not None, reason=f"compiled kernels: {native.PROBLEM}")
@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_layer_forward_passes_few_files(bidirectional: bool) -> None:
    config = MegaLayerConfig(
        embed_dim=16, hidden_dim=24, z_dim=8, ffn_dim=24, dropout=0.1, bidirectional=bidirectional, max_positions=300
    )
    files = files_executed(MegaLayer(config).train(), torch.randn(2, 300, 16))
    modules = sorted(name for name in files if name.startswith("modules"))
    listed = "\n".join(sorted(files))
    assert {"modules/mega_layer.py", "modules/gated_attention.py", "modules/ema.py"} <= set(modules), listed
    assert len(modules) <= MOST_MODULES, f"{len(modules)} files of modules:\n{listed}"
    assert len(files) <= MOST_FILES, f"{len(files)} files:\n{listed}"
