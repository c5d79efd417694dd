"""Names of symbols on the way to a published layout of folders and back."""

from pathlib import Path

import pytest
import torch

from fairseq_mega.compat.checkpoints.loading import load_checkpoint
from fairseq_mega.compat.checkpoints.names import KEY
from fairseq_mega.convert import command, layouts
from tests.convert import test_transformers_conversion
from tests.support import published_megalodon

NAMES = {"source": "salt\nmilk\n\udce9"}


@pytest.mark.parametrize("kind", ["megalodon", "transformers"])
def test_names_come_back(kind: str, tmp_path: Path) -> None:
    """Without them, data of other symbols would be read with the converted model."""
    official, trained, there, back = (tmp_path / name for name in ("official", "trained.pt", "there", "back.pt"))
    if kind == "megalodon":
        published_megalodon.write(official, published_megalodon.model(), 1)
    else:
        case = test_transformers_conversion.CASES[0]
        test_transformers_conversion.write(official, test_transformers_conversion.published(case))
    ours = layouts.to_ours(layouts.read(official), str(official))
    assert KEY not in ours
    torch.save({**ours, KEY: NAMES}, trained)
    assert command.main(["--input", str(trained), "--output", str(there), "--to", "official", "--verify"]) == 0
    assert command.main(["--input", str(there), "--output", str(back)]) == 0
    assert load_checkpoint(back)[KEY] == NAMES
