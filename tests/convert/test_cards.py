"""Data cards on the way to a published layout and back."""

from pathlib import Path

import pytest
import torch

from fairseq_mega.compat.files.card import EARLIER, KEY, card_of
from fairseq_mega.compat.files.loading import load_checkpoint
from fairseq_mega.convert import command, layouts
from tests.convert import test_transformers_conversion
from tests.support import published_images, published_megalodon

GOLDENS = Path(__file__).parent.parent / "goldens"
CARDS = {KEY: {"source": "0", "labels": "salt\n\udce9"}, EARLIER: {"source": "salt\nmilk\n\udce9"}}


@pytest.mark.parametrize("key", CARDS)
@pytest.mark.parametrize("kind", ["images", "lra_classifier", "megalodon", "transformers", "translator"])
def test_cards_come_back(kind: str, key: str, tmp_path: Path) -> None:
    """Without them, other data would be read with the converted model."""
    official, trained, there, back = (tmp_path / name for name in ("official", "trained.pt", "there", "back.pt"))
    if kind == "megalodon":
        published_megalodon.write(official, published_megalodon.model(), 1)
    elif kind == "images":
        torch.save(published_images.checkpoint(), official)
    elif kind == "transformers":
        case = test_transformers_conversion.CASES[0]
        test_transformers_conversion.write(official, test_transformers_conversion.published(case))
    else:
        official = GOLDENS / f"{kind}.official.pt"
    ours = layouts.to_ours(layouts.read(official), str(official))
    assert KEY not in ours
    torch.save({**ours, key: CARDS[key]}, trained)
    assert command.main(["--input", str(trained), "--output", str(there), "--to", "official", "--verify"]) == 0
    assert command.main(["--input", str(there), "--output", str(back)]) == 0
    assert load_checkpoint(back)[KEY] == card_of({key: CARDS[key]}, key)
